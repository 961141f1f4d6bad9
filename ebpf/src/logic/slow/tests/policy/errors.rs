//! ICMP errors under policy: they pass as answers of the flow that they quote, and as nothing else.

use super::*;

/// Port unreachable from `from` to the sender of the quoted packet.
fn error(from: [u8; 4], quoted: &FakePacket, link: u32) -> FakePacket {
    let to = quoted.bytes[26..30].try_into().unwrap();
    FakePacket::new(build::ipv4(from, to, ICMP, &build::icmp(3, 3, [0; 4], &quoted.bytes[14..], None)), link)
}

#[test]
fn an_error_about_an_allowed_flow_passes_where_icmp_is_denied() {
    let mut tables = policed();
    for slot in [1, 2] {
        egress(&mut tables, slot, SET);
        ingress(&mut tables, slot, SET);
    }
    allow(&mut tables, 0, UDP, 53, 71);
    let question = udp(A, B, (1000, 53), LINK_A);
    assert_eq!(a_sends(&tables, question.clone()), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, error(B, &question, LINK_B)), Verdict::peer(LINK_A));
    assert_eq!(tables.stat(Stat::IcmpErrorRelated), 1);
    // Not about a flow that nobody opened, nor one that was denied.
    for port in [54, 1] {
        let other = udp(A, B, (1000, port), LINK_A);
        assert_eq!(a_sends(&tables, other.clone()), EGRESS);
        assert_eq!(a_sends(&tables, error(B, &other, LINK_B)), Verdict::drop(DropReason::IcmpNoFlow));
    }
    // Nor from a pod that the flow is not with, whatever it quotes.
    assert_eq!(a_sends(&tables, error(A, &question, LINK_A)), Verdict::drop(DropReason::IcmpNoFlow));
}

#[test]
fn an_error_about_a_flow_that_policy_ended_passes_no_more() {
    let mut tables = policed();
    ingress(&mut tables, 2, SET);
    allow(&mut tables, 0, UDP, 53, 71);
    let question = udp(A, B, (1000, 53), LINK_A);
    a_sends(&tables, question.clone());
    tables.verdicts.clear();
    raise(&tables, 2);
    let refused = Verdict::drop(DropReason::IcmpNoFlow);
    assert_eq!(a_sends(&tables, error(B, &question, LINK_B)), refused, "before the flow is judged again");
    assert_eq!(a_sends(&tables, question.clone()), INGRESS);
    assert_eq!(a_sends(&tables, error(B, &question, LINK_B)), refused, "and after");
}

#[test]
fn an_error_about_a_loose_fragment_is_nobodys() {
    let mut tables = policed();
    ingress(&mut tables, 2, SET);
    allow_fragments(&mut tables, UDP, 71);
    let later = FakePacket::new(build::ipv4_with(A, B, UDP, 0x2005, &[], &[7; 64]), LINK_A);
    assert_eq!(a_sends(&tables, later.clone()), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, error(B, &later, LINK_B)), Verdict::drop(DropReason::IcmpNoFlow));
}

#[test]
fn an_error_cut_into_fragments_is_judged_as_any_icmp() {
    let mut tables = policed();
    egress(&mut tables, 2, SET);
    let question = udp(A, B, (1000, 53), LINK_A);
    a_sends(&tables, question.clone());
    let message = build::icmp(3, 3, [0; 4], &question.bytes[14..], None);
    let first = FakePacket::new(build::ipv4_with(B, A, ICMP, 0x2000, &[], &message), LINK_B);
    assert_eq!(a_sends(&tables, first), EGRESS);
}
