//! All rows of an open map, in batches where the kernel has them for its kind, else one by one.

use std::{io, os::fd::BorrowedFd};

use aya::Pod;

use crate::{MapError, sys};

/// Rows a batch call moves at first. A dump of 131,072 flows is then 32 calls.
pub(crate) const BATCH: usize = 4096;
/// `ENOTSUPP` of the kernel, which has no name in user space: LPM batches before 5.13 or so (seen on 5.10).
const ENOTSUPP: i32 = 524;

/// Hands over the rows of a map that takes `rows`, some at a time; a value is `per` of `R`. The caller has compared the sizes of `K` and of
/// `per` times `R` with the map's.
pub(crate) fn batches<K: Pod, R: Pod>(
    map: BorrowedFd<'_>,
    rows: u32,
    per: usize,
    error: impl Fn(&'static str, io::Error) -> MapError,
    mut each: impl FnMut(&[K], &[R]) -> Result<(), MapError>,
) -> Result<(), MapError> {
    let mut size = BATCH.min(rows.max(1) as usize);
    let (mut keys, mut values) = (vec![sys::zeroed::<K>(); size], vec![sys::zeroed::<R>(); size * per]);
    let mut token = vec![0; size_of::<K>().max(8)];
    let mut started = false;
    loop {
        let batch = sys::lookup_batch(map, started, &mut token, &mut keys, &mut values, per);
        let done = batch.done.min(size);
        let code = batch.end.as_ref().err().and_then(io::Error::raw_os_error);
        match (batch.end, code) {
            (Ok(()), _) => started = true,
            (Err(_), Some(libc::ENOENT)) => {
                return each(keys.get(..done).unwrap_or_default(), values.get(..done * per).unwrap_or_default());
            }
            // One bucket holds more than fits.
            (Err(_), Some(libc::ENOSPC)) if size < rows as usize => {
                size = (size * 2).min(rows as usize);
                keys.resize(size, sys::zeroed());
                values.resize(size * per, sys::zeroed());
                continue;
            }
            (Err(_), Some(libc::EINVAL | ENOTSUPP)) if !started => return one_by_one(map, rows, per, error, each),
            (Err(source), _) => return Err(error("batch lookup", source)),
        }
        each(keys.get(..done).unwrap_or_default(), values.get(..done * per).unwrap_or_default())?;
    }
}

fn one_by_one<K: Pod, R: Pod>(
    map: BorrowedFd<'_>,
    rows: u32,
    per: usize,
    error: impl Fn(&'static str, io::Error) -> MapError,
    mut each: impl FnMut(&[K], &[R]) -> Result<(), MapError>,
) -> Result<(), MapError> {
    let mut last = None;
    let mut value = vec![sys::zeroed::<R>(); per];
    // A hash starts again at the first key where the last one is gone meanwhile: bounded, so that it ends.
    for _ in 0..u64::from(rows) * 2 {
        let mut next = sys::zeroed::<K>();
        if !sys::next_key(map, last.as_ref(), &mut next).map_err(|e| error("next key", e))? {
            break;
        }
        if sys::lookup(map, &next, &mut value).map_err(|e| error("lookup", e))? {
            each(&[next], &value)?;
        }
        last = Some(next);
    }
    Ok(())
}
