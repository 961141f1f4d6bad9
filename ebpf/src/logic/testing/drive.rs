//! The kernel's part of a run: the fast program of a hook, then the stages it jumps to.

use super::{FakePacket, FakeTables};
use crate::logic::tables::Tables;
use crate::logic::verdict::Kind;
use crate::logic::{Hook, Scratch, Stage, Verdict, door, pod, stage, uplink};

/// Runs the programs of a hook until a verdict.
pub(crate) fn drive(hook: Hook, packet: &mut FakePacket, tables: &FakeTables, now: u32) -> Verdict {
    drive_with(hook, packet, tables, &mut Scratch::default(), now)
}

/// Starts behind the fast program, from this stage.
pub(crate) fn drive_from(stage: Stage, packet: &mut FakePacket, tables: &FakeTables, now: u32) -> Verdict {
    go_on(Verdict::jump(stage), packet, tables, &mut Scratch::default(), now)
}

/// The same, with the scratch to look into afterwards.
pub(crate) fn drive_with(
    hook: Hook,
    packet: &mut FakePacket,
    tables: &FakeTables,
    scratch: &mut Scratch,
    now: u32,
) -> Verdict {
    let verdict = match hook {
        Hook::FromPod => pod::from(packet, tables, now),
        Hook::ToPod => pod::to(packet, tables),
        Hook::FromUplink => uplink::from(packet, tables, now),
        Hook::FromTunnelDevice => uplink::from_tunnel_device(packet, tables),
        Hook::ToUplink => uplink::to(packet, tables, now),
        Hook::ToDoor => door::to(packet, tables),
        Hook::FromDoor => door::from(packet, tables, now),
    };
    scratch.outer = tables.outer.get();
    go_on(verdict, packet, tables, scratch, now)
}

fn go_on(
    mut verdict: Verdict,
    packet: &mut FakePacket,
    tables: &FakeTables,
    scratch: &mut Scratch,
    now: u32,
) -> Verdict {
    for _ in 0..16 {
        if verdict.kind() != Kind::Jump {
            return verdict;
        }
        let next = Stage::ALL[verdict.value() as usize];
        verdict = stage::run(next, packet, tables, tables.config().unwrap(), scratch, now);
    }
    panic!("the kernel ends a chain of 33 jumps");
}
