//! A library for `LD_PRELOAD` that puts the software mlx5 device in front of an ordinary program.
//!
//! The program finds a device `mlx5_0` in sysfs, opens `/dev/infiniband/uverbs0`, and its calls
//! about that descriptor go to the device instead of the kernel. All else goes where it always
//! goes. There is no RDMA netlink.
//!
//! `MLX5_FAKE` says what device it is, see `Config::from_words`. Violations are told on stderr, and
//! the exit code of the program is 99 if there were any; with `MLX5_FAKE=abort` the first one ends
//! it.

mod calls;
mod device;
mod paths;
mod real;
mod sysfs;
