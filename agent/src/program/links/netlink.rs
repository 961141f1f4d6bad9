//! Filters of a clsact qdisc (below 6.6). Found again by a priority and handle of our own; replaced in place.

use aya::{
    programs::{
        ProgramError, SchedClassifier,
        tc::{NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttach, TcError, TcHandle, qdisc_add_clsact},
    },
    sys::NetlinkError,
};

use super::{AttachError, Place};

/// Preference of our filters: before those that the kernel numbers itself (from 49152 down), behind those that mean to be first.
const PRIORITY: u16 = 4000;
/// Handle of our filters.
const HANDLE: TcHandle = TcHandle::new(0, 0x6f73);

fn link(place: Place) -> Result<SchedClassifierLink, AttachError> {
    SchedClassifierLink::attached(place.ifindex, place.direction().into(), PRIORITY, HANDLE, None)
        .map_err(|e| place.failed("naming the filter of", e))
}

/// Puts the program in the place of our filter; false if there is none.
pub(super) fn replace(program: &mut SchedClassifier, place: Place) -> Result<bool, AttachError> {
    match program.attach_to_link(link(place)?) {
        Ok(id) => forget(program, place, id).map(|()| true),
        // ENOENT: no filter; EINVAL: no clsact qdisc; ENODEV: no device.
        Err(error) if matches!(code(&error), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)) => Ok(false),
        Err(error) => Err(place.failed("replacing", error)),
    }
}

/// Makes the qdisc where it is missing, and the filter.
pub(super) fn attach(program: &mut SchedClassifier, place: Place) -> Result<(), AttachError> {
    match qdisc_add_clsact(place.ifindex) {
        Ok(()) | Err(TcError::AlreadyAttached) => {}
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {}
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::ENODEV) => return Err(place.gone()),
        Err(error) => return Err(place.failed("adding a clsact qdisc for", error)),
    }
    let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
    match program.attach(place.ifindex, TcAttach::Netlink { parent: place.direction().into(), options }) {
        Ok(id) => forget(program, place, id),
        Err(error) if code(&error) == Some(libc::ENODEV) => Err(place.gone()),
        Err(error) => Err(place.failed("attaching", error)),
    }
}

/// Removes our filter.
pub(super) fn detach(place: Place) -> Result<(), AttachError> {
    // aya detaches on drop and says nothing: a filter that is not there is what we want.
    drop(link(place)?);
    Ok(())
}

/// Keeps the filter when the program's handle goes.
fn forget(program: &mut SchedClassifier, place: Place, id: SchedClassifierLinkId) -> Result<(), AttachError> {
    std::mem::forget(program.take_link(id).map_err(|e| place.failed("taking the filter of", e))?);
    Ok(())
}

fn code(error: &ProgramError) -> Option<i32> {
    let netlink: &NetlinkError = match error {
        ProgramError::TcError(TcError::NetlinkError(error)) | ProgramError::NetlinkError(error) => error,
        _ => return None,
    };
    netlink.raw_os_error()
}
