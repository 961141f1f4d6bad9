//! When a flow moves to the established table, and what holds it back.

use super::*;

#[test]
fn a_connection_of_one_question_and_one_answer_never_pays_for_the_established_table() {
    let tables = node();
    handshake(&tables);
    from_a(&tables, ACK, b"question", START);
    from_b(&tables, ACK, b"answer", START);
    // Linux acknowledges the first answers at once.
    from_a(&tables, ACK, b"", START);
    from_a(&tables, ACK | FIN, b"", START);
    from_b(&tables, ACK | FIN, b"", START);
    from_a(&tables, ACK, b"", START);
    assert_eq!(tables.stat(Stat::FlowPromoted), 0);
    assert!(tables.flow4.borrow().is_empty());
}

#[test]
fn a_connection_that_goes_on_is_promoted_with_its_counters() {
    let tables = node();
    handshake(&tables);
    from_a(&tables, ACK, b"one", START);
    from_b(&tables, ACK, b"answer", START);
    from_a(&tables, ACK, b"", START);
    from_a(&tables, ACK, b"two", START);
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Established).unwrap();
    let back = entry(&tables, &key(B, A, (80, 1000), 6), Table::Established).unwrap();
    assert_eq!((there.packets, back.packets), (5, 2));
    assert!(there.tcp & T_ESTABLISHED != 0 && back.tcp & T_ESTABLISHED != 0);
    assert!(tables.flow4_new.borrow().is_empty(), "no longer on probation");
    assert_eq!(tables.endpoint_flows(1), 1, "counted to the opener");
    assert_eq!(tables.endpoint_flows(2), 0);
}

#[test]
fn neither_a_handshake_nor_a_reset_gets_into_the_established_table() {
    let tables = node();
    handshake(&tables);
    from_b(&tables, RST, b"", START);
    for _ in 0..20 {
        from_a(&tables, ACK, b"more", START + 5 * SECOND);
    }
    assert!(tables.flow4.borrow().is_empty());
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Probation).unwrap();
    assert!(there.tcp & T_RST != 0);
}

#[test]
fn an_opener_that_only_repeats_its_syn_is_never_promoted() {
    let tables = node();
    for n in 0..40 {
        from_a(&tables, SYN, b"", START + n * SECOND);
    }
    assert_eq!(tables.stat(Stat::FlowPromoted), 0);
}

#[test]
fn a_datagram_flow_is_promoted_two_seconds_after_its_first_reply() {
    let tables = node();
    let ask = |now| drive(Hook::FromPod, &mut udp(A, B, (5, 53), LINK_A), &tables, now);
    let answer = |now| drive(Hook::FromPod, &mut udp(B, A, (53, 5), LINK_B), &tables, now);
    ask(START);
    answer(START + 1);
    ask(START + SECOND);
    assert!(tables.flow4.borrow().is_empty(), "after one second");
    ask(START + 1 + 2 * SECOND);
    assert_eq!(tables.flow4.borrow().len(), 2);
    answer(START + 3 * SECOND);
    let back = entry(&tables, &key(B, A, (53, 5), 17), Table::Established).unwrap();
    assert!(back.flags & F_REPLIED != 0 && back.packets == 2);
}

#[test]
fn a_long_one_way_stream_is_promoted_and_a_burst_is_not() {
    let tables = node();
    let send = |now| drive(Hook::FromPod, &mut udp(A, B, (5, 6), LINK_A), &tables, now);
    for _ in 0..100 {
        send(START);
    }
    assert!(tables.flow4.borrow().is_empty(), "a burst");
    send(START + SECOND);
    assert_eq!(tables.flow4.borrow().len(), 2, "a second later");
}

#[test]
fn a_full_established_table_leaves_the_flow_where_it_works() {
    let mut tables = node();
    tables.established_limit = 1;
    handshake(&tables);
    for _ in 0..10 {
        assert_eq!(from_a(&tables, ACK, b"data", START), Verdict::peer(LINK_B));
    }
    assert_eq!(tables.stat(Stat::FlowTableFull), 1, "tried once a tick");
    assert!(tables.flow4.borrow().is_empty(), "neither direction alone");
    from_a(&tables, ACK, b"data", START + 1);
    assert_eq!(tables.stat(Stat::FlowTableFull), 2);
}

#[test]
fn an_endpoint_that_has_its_share_gets_no_more_of_the_established_table() {
    let mut tables = node();
    tables.config.endpoint_flows = 1;
    for port in [1000, 1001] {
        let send = |from: ([u8; 4], [u8; 4]), ports, flags, link| {
            drive(Hook::FromPod, &mut tcp(from.0, from.1, ports, flags, b"x", link), &tables, START)
        };
        send((A, B), (port, 80), SYN, LINK_A);
        send((B, A), (80, port), SYN | ACK, LINK_B);
        for _ in 0..4 {
            assert_eq!(send((A, B), (port, 80), ACK, LINK_A), Verdict::peer(LINK_B));
        }
    }
    assert_eq!((tables.stat(Stat::FlowPromoted), tables.stat(Stat::FlowEndpointFull)), (1, 1));
}
