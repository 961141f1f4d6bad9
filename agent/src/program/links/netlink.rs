//! Filters of a clsact qdisc (below 6.6). Found again by a priority and handle of our own; replaced in place.

use std::io;

use aya::{
    programs::{
        Link as _, ProgramError, SchedClassifier,
        tc::{NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttach, TcError, TcHandle, qdisc_add_clsact},
    },
    sys::NetlinkError,
};

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption},
};

use super::{AttachError, Place};
use crate::netlink::Netlink;

/// Filters of every protocol, linux/if_ether.h.
const ETH_P_ALL: u16 = 3;

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
        Err(error) if code(&error).is_some_and(is_none) => Ok(false),
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
    match link(place)?.detach() {
        Err(error) if !code(&error).is_some_and(is_none) => Err(place.failed("detaching", error)),
        _ => Ok(()),
    }
}

/// Whether an answer says that there is no such filter: ENOENT, or no clsact qdisc (EINVAL), no device (ENODEV), no filters at all in this
/// kernel (EOPNOTSUPP).
fn is_none(code: i32) -> bool {
    [libc::ENOENT, libc::EINVAL, libc::ENODEV, libc::EOPNOTSUPP].contains(&code)
}

/// Number of the program that our filter runs; `None` where there is no such filter.
pub(super) fn runs(place: Place) -> Result<Option<u32>, AttachError> {
    let failed = |e: anyhow::Error| place.failed("looking at the filter of", e);
    let mut message = TcMessage::default();
    message.header.index = place.ifindex.cast_signed();
    message.header.parent = u32::from(TcHandle::from(place.direction())).into();
    message.header.handle = u32::from(HANDLE).into();
    message.header.info = u32::from(PRIORITY) << 16 | u32::from(ETH_P_ALL.to_be());
    let mut netlink = Netlink::open().map_err(failed)?;
    netlink.send(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_ACK).map_err(failed)?;
    let mut program = None;
    let answer = netlink.answers(|_, message| {
        if let RouteNetlinkMessage::NewTrafficFilter(filter) = message {
            program = program.or(id(&filter));
        }
    });
    match answer {
        Err(error) if !is_none(error) => Err(failed(io::Error::from_raw_os_error(error).into())),
        _ => Ok(program),
    }
}

fn id(filter: &TcMessage) -> Option<u32> {
    let options = filter.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    options.flatten().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
        _ => None,
    })
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
