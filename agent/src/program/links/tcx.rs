//! tcx links (6.6): made, pinned, and replaced by link update.

use std::{io, path::Path};

use aya::programs::{
    LinkOrder, ProgramError, SchedClassifier,
    links::{FdLink, LinkError, PinnedLink},
    tc::{SchedClassifierLink, SchedClassifierLinkId, TcAttach},
};
use osmia_maps::sys::{detach_pinned_link, pinned_link_info};

use super::{AttachError, Place, remove};

/// Number of the program that the pinned link runs; `None` where there is no such pin, or its link has no device any more.
pub(super) fn runs(place: Place, pin: &Path) -> Result<Option<u32>, AttachError> {
    match pinned_link_info(pin) {
        Ok(info) => Ok((info.ifindex == place.ifindex).then_some(info.program)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(place.failed("looking at the link of", error)),
    }
}

/// Puts the program on the pinned link; false if there is none that lives.
pub(super) fn replace(program: &mut SchedClassifier, place: Place, pin: &Path) -> Result<bool, AttachError> {
    let failed = |e: ProgramError| place.failed("replacing", e);
    let info = match pinned_link_info(pin) {
        Ok(info) if info.ifindex == place.ifindex => info,
        Ok(_) => {
            remove(pin)?;
            return Ok(false);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(place.failed("looking at the link of", error)),
    };
    if info.program == program.info().map_err(failed)?.id() {
        return Ok(true);
    }
    let link = PinnedLink::from_pin(pin).map_err(|e| place.failed("opening the link of", e))?;
    let link: SchedClassifierLink =
        FdLink::from(link).try_into().map_err(|e: LinkError| place.failed("taking the link of", e))?;
    match program.attach_to_link(link) {
        Ok(id) => forget(program, place, id).map(|_| true),
        // The device went between the look and the call.
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOLINK) => {
            remove(pin)?;
            Ok(false)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Takes a pinned link off its hook; when this returns, no packet is in its program.
pub(super) fn detach(place: Place, pin: &Path) -> Result<(), AttachError> {
    match detach_pinned_link(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(place.failed("detaching the link of", error)),
        _ => Ok(()),
    }
}

/// Makes a link and pins it. Killed in between, the link goes with the process: the hook is as it was.
pub(super) fn attach(program: &mut SchedClassifier, place: Place, pin: &Path) -> Result<(), AttachError> {
    attach_at(program, place, pin, LinkOrder::default())
}

/// As [`attach`], in front of another pinned link of the hook.
pub(super) fn attach_before(
    program: &mut SchedClassifier,
    place: Place,
    pin: &Path,
    other: &Path,
) -> Result<(), AttachError> {
    let other = PinnedLink::from_pin(other).map_err(|e| place.failed("opening the link of", e))?;
    // The order names it by number only: it stays open until the call is done.
    let other: SchedClassifierLink =
        FdLink::from(other).try_into().map_err(|e: LinkError| place.failed("taking the link of", e))?;
    let order = LinkOrder::before_link(&other).map_err(|e| place.failed("naming the link of", e))?;
    attach_at(program, place, pin, order)
}

fn attach_at(program: &mut SchedClassifier, place: Place, pin: &Path, order: LinkOrder) -> Result<(), AttachError> {
    let order = TcAttach::Tcx { attach_type: place.direction(), order };
    let id = match program.attach(place.ifindex, order) {
        Ok(id) => id,
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENODEV) => {
            return Err(place.gone());
        }
        Err(error) => return Err(place.failed("attaching", error)),
    };
    let link = forget(program, place, id)?;
    link.pin(pin).map(drop).map_err(|e| place.failed("pinning the link of", e))
}

/// The link as a file descriptor, out of the hands of aya, which would detach it.
fn forget(program: &mut SchedClassifier, place: Place, id: SchedClassifierLinkId) -> Result<FdLink, AttachError> {
    let link = program.take_link(id).map_err(|e| place.failed("taking the link of", e))?;
    link.try_into().map_err(|e: LinkError| place.failed("taking the link of", e))
}
