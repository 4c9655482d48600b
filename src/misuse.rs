//! Programs that must not compile: mistakes of C programs that the types rule out.
//!
//! Each begins as a right program would and ends with the mistake. The error's number is checked
//! by nightly compilers.

/// An answer is given once.
///
/// ```compile_fail,E0382
/// # fn main() -> rdmacm::Result<()> {
/// let listener = rdmacm::Listener::bind("10.10.0.1:7471")?;
/// let request = listener.incoming(None)?;
/// request.reject(b"full")?;
/// request.reject(b"full")
/// # }
/// ```
mod a_request_is_answered_once {}

/// Registered memory cannot grow, and nobody has a reference to it.
///
/// ```compile_fail,E0599
/// # fn main() -> rdmacm::Result<()> {
/// let connection = rdmacm::Connector::new().connect("10.10.0.1:7471")?;
/// let mut buffer = connection.alloc(64)?;
/// buffer.push(1);
/// # Ok(())
/// # }
/// ```
mod registered_memory_cannot_grow {}

/// There is no view of registered memory that the device could write behind.
///
/// ```compile_fail,E0608
/// # fn main() -> rdmacm::Result<()> {
/// let connection = rdmacm::Connector::new().connect("10.10.0.1:7471")?;
/// let buffer = connection.alloc(64)?;
/// let first: u8 = buffer[0];
/// # Ok(())
/// # }
/// ```
mod registered_memory_has_no_references {}

/// A number of completions is no error code, and a failed post is no number.
///
/// ```compile_fail,E0308
/// # fn post(connection: &mut rdmacm::Connection) {
/// let posted: i32 = connection.batch().submit();
/// # }
/// ```
mod an_outcome_is_no_number {}

/// A batch is published once.
///
/// ```compile_fail,E0382
/// # fn post(connection: &mut rdmacm::Connection) -> Result<(), rdmacm::PostError> {
/// let batch = connection.batch();
/// batch.submit()?;
/// batch.submit()
/// # }
/// ```
mod a_batch_is_submitted_once {}

/// One thread polls a queue at a time.
///
/// ```compile_fail,E0499
/// # fn poll(cq: &mut rdmacm::Cq) {
/// let mut entries = [rdmacm::Completion::default(); 2];
/// let (one, other) = entries.split_at_mut(1);
/// std::thread::scope(|scope| {
///     scope.spawn(|| cq.poll(one).len());
///     scope.spawn(|| cq.poll(other).len());
/// });
/// # }
/// ```
mod a_queue_is_polled_by_one_thread {}

/// A failed completion does not tell what it was of: the device may not say.
///
/// ```compile_fail,E0599
/// # fn look(failure: rdmacm::Failure) {
/// failure.opcode();
/// # }
/// ```
mod a_failure_has_no_opcode {}

/// Posting and destroying do not meet: what can post is needed for that.
///
/// ```compile_fail,E0505
/// # fn end(mut connection: rdmacm::Connection) -> rdmacm::Result<()> {
/// let batch = connection.batch();
/// connection.close()?;
/// batch.submit()?;
/// # Ok(())
/// # }
/// ```
mod a_batch_ends_before_its_connection {}

/// What a stream lends is gone with the stream.
///
/// ```compile_fail,E0505
/// # fn read(stream: rdmacm::RdmaStream) -> std::io::Result<()> {
/// let mut lent = stream.lend()?;
/// drop(stream);
/// lent.consume(1);
/// # Ok(())
/// # }
/// ```
mod what_is_lent_does_not_outlive_its_stream {}

/// Bytes that were consumed are the peer's to write to again.
///
/// ```compile_fail,E0502
/// # fn read(stream: &rdmacm::RdmaStream) -> std::io::Result<()> {
/// let mut lent = stream.lend()?;
/// // SAFETY: the peer is trusted to keep to the protocol.
/// let bytes = unsafe { lent.as_slice() };
/// lent.consume(1);
/// println!("{bytes:?}");
/// # Ok(())
/// # }
/// ```
mod what_is_consumed_is_not_looked_at {}

/// A peer that breaks the protocol can write behind a slice of what is lent, which the program has to
/// vouch for.
///
/// ```compile_fail,E0133
/// # fn read(stream: &rdmacm::RdmaStream) -> std::io::Result<()> {
/// let lent = stream.lend()?;
/// println!("{:?}", lent.as_slice());
/// # Ok(())
/// # }
/// ```
mod what_is_lent_is_a_slice_only_on_trust {}
