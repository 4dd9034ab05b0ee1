// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/deferred_queue.hpp>
#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/meeting.hpp>
#include <shardkit/backend/threads/rendezvous.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/comm/call.hpp>

namespace shardkit::threads::detail {

/// Runs work(handle, call) in the order of the stream, a default one or one of the rank's, with the handle of who
/// runs it: a thread of the stream's, or this rank, which has then run what it put off there.
/// @throws UsageError when the stream is none of them; what of that failed, and what the work throws in this thread
template <class Work>
void run_on_stream(const host::HostStream& stream, const GroupHandle& handle, const shardkit::Call& call,
                   const Work& work) {
    if (stream.is_inline()) {
        work(handle, call);
        return;
    }
    const Caller caller = handle.world->owner(stream, handle, call.where);
    GroupHandle of_stream = handle;
    of_stream.group = &handle.group->of(caller);
    if (handle.world->overlap() == Overlap::deferred) {
        stream.synchronize();
        work(of_stream, call);
        return;
    }
    of_stream.thread = &handle.world->state(handle).thread(caller);
    handle.group->begin_use();
    stream.submit([of_stream, used = handle.group, call, work] {
        const Group::EndUse ends{*used};
        work(of_stream, call);
    });
}

/// Shows a call to the peers now, and ends it when the stream, one of the rank's, is waited for, or what this rank
/// calls next cannot pass it: then copy(round) moves the data. What throws has not been called.
/// @throws UsageError when the stream is none of them; PeerError when a peer cannot come any more; what of that
/// failed
template <class Copy>
void defer(const host::HostStream& stream, const GroupHandle& handle, const shardkit::Call& call,
           const host::detail::UsedMemory& used, const Copy& copy) {
    const Caller caller = handle.world->owner(stream, handle, call.where);
    host::detail::DeferredQueue& queue = *handle.world->state(handle).deferred[RankState::index(caller)];
    queue.make_way(used);
    DeferredMeetings& meetings = handle.group->deferred(caller);
    const DeferredMeetings::Turn turn = meetings.next(handle.rank);
    queue.wait(turn.positions.submitted);  // this rank has left the meeting
    const Seat seat(handle, turn.meeting);
    seat.wait_for_turn(call);  // and so have its peers
    const Round::Begun next = Round::next(seat, used.read_bytes);
    turn.positions.shown = queue.submitted() + 1;
    handle.group->begin_use();
    // In the queue before the last rank leaves it to helpers.
    queue.submit_begun(
        [handle, meeting = &turn.meeting, call, next, copy](const host::detail::Run& run) {
            const Seat later(handle, *meeting);
            if (run.assists) {
                const Round round(later, call, next, Round::Assists{});
                if (round.agreed() && round.takes_parts()) { copy(round); }
                return;
            }
            const Group::EndUse ends{*handle.group};
            Round round(later, call, next);
            if (round.agreed()) { copy(static_cast<const Round&>(round)); }
            run.door.close();
            if (!round.agreed()) { round.leave_and_throw(); }
            round.leave();
        },
        used);
    const Entry entry = Round::begin(seat, call, next, used.read, used.read_bytes, used.written);
    if (entry == Entry::refused) {
        queue.take_back();
        const Group::EndUse ends{*handle.group};
        seat.refuse(call, next.sequence);
    }
    ++turn.begun;
    turn.positions.submitted = turn.positions.shown;
    if (entry == Entry::last) { handle.world->leave_to_helpers(handle, caller, meetings, turn, next.carried); }
}

}  // namespace shardkit::threads::detail
