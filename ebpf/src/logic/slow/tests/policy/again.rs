//! Living flows under a changed policy: judged by their opener's tuple, whichever end sends next.

use super::*;

/// A connection from A, egress allowed, to B, ingress allowed, neither of whom may open one the other way.
fn connected() -> FakeTables {
    let mut tables = policed();
    for slot in [1, 2] {
        egress(&mut tables, slot, SET);
        ingress(&mut tables, slot, SET);
    }
    allow(&mut tables, 0, TCP, 80, 71);
    handshake(&tables);
    tables
}

fn establish(tables: &FakeTables) {
    for data in [b"1", b"2", b"3"] {
        from_a(tables, ACK, data, START);
    }
    assert_eq!((tables.flow4.borrow().len(), tables.flow4_new.borrow().len()), (2, 0));
}

fn revoke(tables: &mut FakeTables) {
    tables.verdicts.remove(&VerdictKey { bits: PORT_BITS, asked: Asked { set: SET, ..about(0, TCP, 80) } });
}

#[test]
fn an_answer_passes_though_its_own_direction_is_denied() {
    let tables = connected();
    assert_eq!(from_b(&tables, ACK, b"answer", START), Verdict::peer(LINK_A));
    assert_eq!(a_sends(&tables, tcp(B, A, (80, 1001), SYN, b"", LINK_B)), EGRESS, "what is no answer");
}

#[test]
fn an_answer_under_a_new_epoch_is_judged_as_its_opener() {
    for established in [false, true] {
        let tables = connected();
        if established {
            establish(&tables);
        }
        for slot in [1, 2] {
            raise(&tables, slot);
            assert_eq!(from_b(&tables, ACK, b"answer", START), Verdict::peer(LINK_A));
        }
        assert_eq!(tables.stat(Stat::FlowRejudged), 2);
    }
}

/// Both directions of the connection from A to B, wherever they are.
fn both(tables: &FakeTables) -> [FlowEntry; 2] {
    let find = |key| {
        entry(tables, &key, Table::Established).or_else(|| entry(tables, &key, Table::Probation)).expect("an entry")
    };
    [find(key(A, B, (1000, 80), TCP)), find(key(B, A, (80, 1000), TCP))]
}

/// Whether an entry is of a decision that holds no more.
fn is_stale(tables: &FakeTables, entry: &FlowEntry) -> bool {
    (tables.epoch(entry.src_slot), tables.epoch(entry.dst_slot)) != (entry.src_epoch, entry.dst_epoch)
}

#[test]
fn what_is_revoked_ends_with_the_next_packet_of_either_end_and_never_comes_back_turned_round() {
    for established in [false, true] {
        for (slot, denied) in [(1, EGRESS), (2, INGRESS)] {
            for answers in [false, true] {
                let mut tables = connected();
                if established {
                    establish(&tables);
                }
                // Nothing else is denied to anybody: B might open a connection to A.
                match slot {
                    1 => {
                        ingress(&mut tables, 1, 0);
                        ingress(&mut tables, 2, 0);
                        egress(&mut tables, 2, 0);
                    }
                    _ => {
                        egress(&mut tables, 1, 0);
                        egress(&mut tables, 2, 0);
                        ingress(&mut tables, 1, 0);
                    }
                }
                revoke(&mut tables);
                assert_eq!(from_a(&tables, ACK, b"before", START), Verdict::peer(LINK_B), "rows alone end nothing");
                raise(&tables, slot);
                let before = both(&tables);
                let send = if answers { from_b } else { from_a };
                let case = format!("established {established}, slot {slot}, by an answer {answers}");
                let later = START + SECOND;
                assert_eq!(send(&tables, ACK, b"after", later), denied, "{case}");
                for _ in 0..2 {
                    assert_eq!(from_b(&tables, ACK, b"stream", later), denied, "{case}");
                    assert_eq!(from_a(&tables, ACK, b"data", later), denied, "{case}");
                    assert_eq!(from_b(&tables, ACK | FIN, b"", later), denied, "{case}");
                    assert_eq!(from_a(&tables, RST, b"", later), denied, "{case}");
                }
                assert!(both(&tables).iter().all(|entry| is_stale(&tables, entry)), "{case}");
                for (now, before) in both(&tables).iter().zip(before) {
                    assert_eq!(FlowEntry { src_epoch: before.src_epoch, ..*now }, before, "{case}: it ages");
                }
                let places = if established { (2, 0) } else { (0, 2) };
                assert_eq!((tables.flow4.borrow().len(), tables.flow4_new.borrow().len()), places, "{case}");
            }
        }
    }
}

#[test]
fn what_is_revoked_and_allowed_again_goes_on() {
    for established in [false, true] {
        for answers in [false, true] {
            let mut tables = connected();
            if established {
                establish(&tables);
            }
            revoke(&mut tables);
            raise(&tables, 2);
            assert_ne!(from_a(&tables, ACK, b"denied", START), Verdict::peer(LINK_B));
            allow(&mut tables, 0, TCP, 80, 72);
            raise(&tables, 2);
            let created = both(&tables).map(|entry| entry.created);
            let later = START + SECOND;
            if answers {
                assert_eq!(from_b(&tables, ACK, b"again", later), Verdict::peer(LINK_A));
            }
            assert_eq!(from_a(&tables, ACK, b"again", later), Verdict::peer(LINK_B));
            assert!(!both(&tables).iter().any(|entry| is_stale(&tables, entry)));
            assert_eq!(both(&tables).map(|entry| entry.created), created, "it is the one that was");
            assert_eq!(from_b(&tables, ACK, b"again", later), Verdict::peer(LINK_A));
        }
    }
}

#[test]
fn after_a_denial_a_syn_opens_a_connection_of_its_sender() {
    let mut tables = connected();
    establish(&tables);
    egress(&mut tables, 1, 0);
    egress(&mut tables, 2, 0);
    ingress(&mut tables, 1, 0);
    revoke(&mut tables);
    raise(&tables, 2);
    assert_eq!(from_b(&tables, ACK, b"answer", START), INGRESS);
    assert_eq!(from_a(&tables, SYN, b"", START), INGRESS);
    assert_eq!(from_b(&tables, SYN | ACK, b"", START), INGRESS, "an answer, and no SYN of its own");
    assert_eq!(from_b(&tables, SYN, b"", START), Verdict::peer(LINK_A));
    assert_eq!(both(&tables).map(|entry| entry.flags & F_OPENER), [0, F_OPENER]);
    assert_eq!(from_a(&tables, SYN | ACK, b"", START), Verdict::peer(LINK_B));

    let mut tables = connected();
    establish(&tables);
    revoke(&mut tables);
    raise(&tables, 2);
    assert_ne!(from_a(&tables, ACK, b"denied", START), Verdict::peer(LINK_B));
    allow(&mut tables, 0, TCP, 80, 72);
    raise(&tables, 2);
    assert_eq!(from_a(&tables, SYN, b"", START + SECOND), Verdict::peer(LINK_B));
    assert_eq!(both(&tables).map(|entry| (entry.created, entry.tcp & T_ESTABLISHED)), [(START + SECOND, 0); 2]);
}

#[test]
fn a_drop_of_a_flow_judged_again_names_what_isolates() {
    let mut tables = connected();
    revoke(&mut tables);
    raise(&tables, 2);
    egress(&mut tables, 1, 0);
    let mut scratch = Scratch::default();
    let mut answer = tcp(B, A, (80, 1000), ACK, b"", LINK_B);
    assert_eq!(drive_with(Hook::FromPod, &mut answer, &tables, &mut scratch, START), INGRESS);
    assert_eq!((scratch.drop.cookie, scratch.drop.src), (ISOLATED, Addr::v4(B)));
}

#[test]
fn a_flow_judged_again_has_the_cookies_of_now() {
    let mut tables = connected();
    allow(&mut tables, 0, TCP, 80, 72);
    raise(&tables, 2);
    assert_eq!(from_b(&tables, ACK, b"answer", START), Verdict::peer(LINK_A));
    for direction in [key(A, B, (1000, 80), TCP), key(B, A, (80, 1000), TCP)] {
        let entry = entry(&tables, &direction, Table::Probation).unwrap();
        assert_eq!((entry.egress_cookie, entry.ingress_cookie), (72, 72));
    }
}

#[test]
fn the_answers_of_another_node_and_of_the_world_are_judged_as_their_opener() {
    for tunnel in [false, true] {
        let mut tables = policed();
        tables.uplinks.insert(UPLINK, Uplink { v4: tables.config.node4, mtu: 1500, ..Uplink::default() });
        remote(&mut tables, if tunnel { N_TUNNEL } else { 0 });
        egress(&mut tables, 1, SET);
        ingress(&mut tables, 1, SET);
        allow(&mut tables, 0, UDP, 53, 71);
        let opened = a_sends(&tables, udp(A, REMOTE, (1000, 53), LINK_A));
        assert_ne!(opened.kind(), crate::logic::verdict::Kind::Drop);
        let answer = |tables: &FakeTables| {
            let mut packet = udp(REMOTE, A, (53, 1000), UPLINK);
            if !tunnel {
                return drive(Hook::FromUplink, &mut packet, tables, START);
            }
            packet.tunnel_key = Some(TunnelKey { vni: 1, remote: Addr::v4([192, 168, 0, 2]) });
            packet.ifindex = tables.config.tunnel_dev;
            drive(Hook::FromTunnelDevice, &mut packet, tables, START)
        };
        raise(&tables, 1);
        assert_eq!(answer(&tables), Verdict::peer(LINK_A), "tunnel {tunnel}");
        tables.verdicts.clear();
        raise(&tables, 1);
        // A's ingress would allow it as a packet of its sender's own.
        ingress(&mut tables, 1, 0);
        for _ in 0..2 {
            assert_eq!(answer(&tables), EGRESS, "tunnel {tunnel}");
        }
    }
}

#[test]
fn a_masqueraded_flow_that_is_revoked_gives_its_port_back() {
    let mut tables = policed();
    tables.uplinks.insert(UPLINK, Uplink { v4: tables.config.node4, mtu: 1500, ..Uplink::default() });
    egress(&mut tables, 1, SET);
    allow(&mut tables, 0, UDP, 53, 71);
    let fib = Fib::Out { ifindex: UPLINK, next_hop: Addr::v4([192, 168, 0, 254]) };
    let send = |tables: &FakeTables, packet: &mut FakePacket, hook| {
        packet.fib = fib;
        drive(hook, packet, tables, START)
    };
    let mut question = udp(A, OUTSIDE, (1000, 53), LINK_A);
    assert_eq!(send(&tables, &mut question, Hook::FromPod), Verdict::neighbour(UPLINK, Addr::v4([192, 168, 0, 254])));
    let port = u16::from_be_bytes([question.bytes[34], question.bytes[35]]);
    let answer = || udp(OUTSIDE, [192, 168, 0, 1], (53, port), UPLINK);
    raise(&tables, 1);
    assert_eq!(send(&tables, &mut answer(), Hook::FromUplink), Verdict::peer(LINK_A));
    tables.verdicts.clear();
    raise(&tables, 1);
    assert_eq!(send(&tables, &mut answer(), Hook::FromUplink), EGRESS);
    assert!(is_untouched(&tables));
    assert_eq!(
        send(&tables, &mut answer(), Hook::FromUplink),
        Verdict::NEXT,
        "the node's own, as far as anybody knows"
    );
}

#[test]
fn a_flow_out_of_the_stack_is_judged_again_by_its_answer() {
    let mut tables = policed();
    ingress(&mut tables, 1, SET);
    egress(&mut tables, 1, SET);
    allow(&mut tables, 0, UDP, 53, 71);
    let door = tables.config.door_pods;
    let forwarded = |tables: &FakeTables| drive(Hook::FromDoor, &mut udp(OUTSIDE, A, (1000, 53), door), tables, START);
    assert_eq!(forwarded(&tables), Verdict::peer(LINK_A));
    raise(&tables, 1);
    assert_eq!(a_sends(&tables, udp(A, OUTSIDE, (53, 1000), LINK_A)), Verdict::STACK);
    tables.verdicts.clear();
    raise(&tables, 1);
    egress(&mut tables, 1, 0);
    for _ in 0..2 {
        assert_eq!(a_sends(&tables, udp(A, OUTSIDE, (53, 1000), LINK_A)), INGRESS, "not A's own");
    }
}

#[test]
fn an_answer_whose_entry_was_lost_is_judged_as_its_opener() {
    let mut tables = connected();
    tables.remove_flow4(&key(B, A, (80, 1000), TCP), Table::Probation);
    assert_eq!(from_b(&tables, ACK, b"answer", START), Verdict::peer(LINK_A));
    revoke(&mut tables);
    tables.remove_flow4(&key(B, A, (80, 1000), TCP), Table::Probation);
    egress(&mut tables, 2, 0);
    ingress(&mut tables, 1, 0);
    for _ in 0..2 {
        assert_eq!(from_b(&tables, ACK, b"answer", START), EGRESS, "A's egress: B's own would allow it");
    }
    let left = entry(&tables, &key(A, B, (1000, 80), TCP), Table::Probation).unwrap();
    assert!(is_stale(&tables, &left));
    assert_eq!(tables.flow4_new.borrow().len(), 1, "a denial writes no entry");
}

#[test]
fn a_syn_the_other_way_is_an_answer_until_the_connection_ends() {
    let tables = connected();
    assert_eq!(from_b(&tables, SYN, b"", START), Verdict::peer(LINK_A));
    from_a(&tables, ACK | FIN, b"", START);
    assert_eq!(from_b(&tables, SYN, b"", START), EGRESS, "now it would open one");
    assert_eq!(from_a(&tables, ACK, b"", START), Verdict::peer(LINK_B), "and what there was goes on");
}
