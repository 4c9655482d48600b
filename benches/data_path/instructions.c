/* Posts and polls through libibverbs and its rxe provider, with a mark around each call, for `vm instructions` to count
 * what happens in between: a write to the descriptor -1, of the call's name before it and of nothing after it.
 * instructions.rs is the same with rdmacm, case by case.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 64, SEGMENTS = 4, INLINE = 64, LIST = 32, MANY = 16, ROUNDS = 4 };

static struct ibv_qp *near_qp, *far_qp;
static struct ibv_cq *cq, *far_cq;
static struct ibv_mr *mr;
static char memory[4096];
static struct ibv_sge segments[SEGMENTS];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void check_success(const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "a request failed: %s\n", ibv_wc_status_str(wc->status));
	exit(1);
}

#define CHECK(condition) do { if (!(condition)) fail(#condition); } while (0)

static __attribute__((noinline)) void mark(const char *name)
{
	if (write(-1, name, strlen(name)) >= 0)
		fail("mark");
}

/* Posts and says how many instructions that is. */
static void post(const char *name, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int status;

	mark(name);
	status = ibv_post_send(near_qp, wr, &bad);
	mark("");
	CHECK(status == 0);
}

static void post_recv(const char *name, struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .wr_id = 7, .sg_list = segments, .num_sge = 1 }, *bad;
	int status;

	mark(name);
	status = ibv_post_recv(qp, &wr, &bad);
	mark("");
	CHECK(status == 0);
}

/* Polls up to `room` completions. False when there were not `due` of them. */
static int poll(const char *name, int room, int due)
{
	struct ibv_wc wc[MANY];
	int count;

	mark(name);
	count = ibv_poll_cq(cq, room, wc);
	mark("");
	return count == due;
}

/* Waits until the completions of `count` requests are in the queue. There is no call that says so. */
static void let_complete(void)
{
	usleep(20000);
}

/* Takes away all completions there are, and gives the far side its receives again. */
static void clean_up(void)
{
	struct ibv_wc wc;
	struct ibv_recv_wr wr = { .sg_list = segments, .num_sge = SEGMENTS }, *bad;

	let_complete();
	while (ibv_poll_cq(cq, 1, &wc) == 1)
		check_success(&wc);
	while (ibv_poll_cq(far_cq, 1, &wc) == 1) {
		check_success(&wc);
		CHECK(ibv_post_recv(far_qp, &wr, &bad) == 0);
	}
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, int num_sge, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = segments, .num_sge = num_sge };

	wr.opcode = opcode;
	wr.send_flags = flags;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
	wr.wr.rdma.rkey = mr->rkey;
	return wr;
}

static void post_one(const char *name, struct ibv_send_wr wr)
{
	post(name, &wr);
	clean_up();
}

static void post_list(void)
{
	struct ibv_send_wr list[LIST];
	int i;

	for (i = 0; i < LIST; i++) {
		list[i] = request(IBV_WR_SEND, 1, i + 1 < LIST ? 0 : IBV_SEND_SIGNALED);
		list[i].next = i + 1 < LIST ? &list[i + 1] : NULL;
	}
	post("a list of 32 sends", list);
	clean_up();
}

static void poll_after(const char *name, int requests, int room)
{
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED), *bad;
	int i, done;

	do {
		for (i = 0; i < requests; i++)
			CHECK(ibv_post_send(near_qp, &wr, &bad) == 0);
		let_complete();
		done = poll(name, room, requests);
		clean_up();
	} while (!done);
}

static void round_of_all(void)
{
	mark("nothing");
	mark("");
	post_one("send of 64 bytes inline", request(IBV_WR_SEND, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE));
	post_one("send of 1 segment", request(IBV_WR_SEND, 1, IBV_SEND_SIGNALED));
	post_one("send of 4 segments", request(IBV_WR_SEND, 4, IBV_SEND_SIGNALED));
	post_one("write of 1 segment", request(IBV_WR_RDMA_WRITE, 1, IBV_SEND_SIGNALED));
	post_one("read into 1 segment", request(IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED));
	post_list();
	post_recv("receive into 1 segment", near_qp);
	poll_after("poll of 1 completion", 1, 1);
	poll_after("poll of 16 completions", MANY, MANY);
	poll_after("poll of nothing", 0, MANY);
}

/* The index of the GID that belongs to an IPv4 address. */
static int gid_index(struct ibv_context *context, const char *address, union ibv_gid *gid)
{
	unsigned char wanted[16] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;
	int i;

	CHECK(inet_pton(AF_INET, address, wanted + 12) == 1);
	for (i = 0; i < 256; i++) {
		if (ibv_query_gid_ex(context, 1, i, &entry, 0) || memcmp(entry.gid.raw, wanted, sizeof(wanted)))
			continue;
		*gid = entry.gid;
		return i;
	}
	fail("no GID of that address");
	return -1;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *of_qp)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = of_qp,
		.recv_cq = of_qp,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = SEGMENTS,
			.max_recv_sge = SEGMENTS,
			.max_inline_data = INLINE,
		},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp);
	return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer, int index, union ibv_gid gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 1,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { gid, .sgid_index = index, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_recv_wr wr = { .sg_list = segments, .num_sge = SEGMENTS }, *bad;
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int i, index;

	CHECK(argc == 2 && devices && devices[0]);
	CHECK(context = ibv_open_device(devices[0]));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0));
	CHECK(far_cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof(memory),
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	for (i = 0; i < SEGMENTS; i++)
		segments[i] = (struct ibv_sge) { (uintptr_t)memory + INLINE * i, INLINE, mr->lkey };
	near_qp = create_qp(pd, cq);
	far_qp = create_qp(pd, far_cq);
	index = gid_index(context, argv[1], &gid);
	connect_qp(near_qp, far_qp->qp_num, index, gid);
	connect_qp(far_qp, near_qp->qp_num, index, gid);
	for (i = 0; i < DEPTH - 1; i++)
		CHECK(ibv_post_recv(far_qp, &wr, &bad) == 0);
	/* The first time is another one: symbols are looked up. */
	for (i = 0; i < ROUNDS; i++)
		round_of_all();
	return 0;
}
