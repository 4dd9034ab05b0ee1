// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/verbs/communicator.hpp>

// What all verbs do before and after the engine's own.

namespace shardkit::detail {

/// Records that a call has failed if its scope ends before the call's end.
class OpenCall : NotCopied {
  public:
    OpenCall(const Communicator& comm, const Call& call) noexcept : comm_(comm), call_(call) {}
    [[gnu::always_inline]] ~OpenCall() { comm_.label().journal.recorder().close(call_); }

  private:
    const Communicator& comm_;
    const Call& call_;
};
/// An engine's call, without its type.
struct EngineCall {
    const void* member;
    std::uint64_t (*call)(const void* member, const host::Verbs& engine);
};
/// Does the common work of every verb before and after the engine's, unless an observer leaves the call out.
[[gnu::noinline]] inline void make_recorded_call(const Communicator& comm, const Call& call, const void* input,
                                                 void* output, const EngineCall& made) {
    const engine::CommunicatorLabel& label = comm.label();
    engine::Journal& journal = label.journal;
    const recorder::ObservedCall seen{call, label.axes, &comm, input, output};
    if (journal.observer() != nullptr && !journal.observer()->before(seen)) { return; }
    // A rank alone waits in no call, but for messages to itself.
    if (comm.size() > 1 || is_message(call.signature.verb)) { journal.begin(label, call); }
    const OpenCall open(comm, call);
    const std::uint64_t moved = made.call(made.member, *comm.verbs());
    comm.size() > 1 ? journal.end(label, call, moved) : journal.recorder().end(call);
    if (journal.observer() != nullptr) { journal.observer()->after(seen); }
}
/// Makes an engine's call, by member(the engine's verbs), which returns what was moved.
template <class Member>
[[gnu::always_inline]] inline void make_call(const Communicator& comm, const Call& call, const void* input,
                                             void* output, const Member& member) {
    const host::Verbs& engine = *comm.verbs();
    // Nothing of it is recorded: a rank alone waits in no call, but for messages to itself, and moves nothing.
    if (engine.size() == 1 && !is_message(call.signature.verb) && engine.label().journal.observer() == nullptr) {
        member(engine);
        return;
    }
    const Member kept = member;  // which else would be in memory in every call, with all that it refers to
    make_recorded_call(comm, call, input, output, {&kept, [](const void* of, const host::Verbs& its) {
                                                       return (*static_cast<const Member*>(of))(its);
                                                   }});
}

/// Checks that `full` is as long as all ranks' shards together.
[[gnu::always_inline]] inline void check_full(const Communicator& comm, std::string_view verb, std::size_t full,
                                              std::size_t shard, SourceLocation where) {
    if (full == shard * comm.size()) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": full has ", full, " elements, expected ",
                           comm.size(), " ranks x ", shard, " of shard");
}
/// Checks that the number of ranks divides the number of elements.
[[gnu::always_inline]] inline void check_multiple(const Communicator& comm, std::string_view verb,
                                                  std::size_t elements, SourceLocation where) {
    if (elements % comm.size() == 0) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": ", elements, " elements, expected a multiple of ",
                           comm.size(), " ranks");
}
/// Checks that `comm` has the rank. `what` names it: "peer".
[[gnu::always_inline]] inline void check_rank(const Communicator& comm, std::string_view verb, std::string_view what,
                                              std::size_t rank, SourceLocation where) {
    if (rank < comm.size()) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": ", what, " ", rank, ", expected a rank below ",
                           comm.size());
}

/// @throws std::invalid_argument where ranks have no tree
inline void require_tree(const Communicator& comm, ReduceOp op, std::string_view verb, SourceLocation where) {
    if (op == ReduceOp::tree_sum && !std::has_single_bit(comm.size())) {
        throw_invalid_argument(where, verb, " over ", comm.axes(), ": tree_sum over ", comm.size(),
                               " ranks, expected a power of two");
    }
}

}  // namespace shardkit::detail
