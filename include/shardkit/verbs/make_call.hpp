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

/// Does the common work of every verb before the call of the engine's member, as `end` does the work after it.
/// Returns false when an observer leaves the call out.
[[gnu::always_inline]] inline bool begin(const Communicator& comm, const Call& call, const void* input,
                                         void* output) {
    const engine::CommunicatorLabel& label = comm.label();
    recorder::CallObserver* const observer = label.journal.observer();
    if (observer != nullptr) [[unlikely]] {
        if (!observer->before({call, label.axes, &comm, input, output})) { return false; }
    }
    // A rank alone waits in no call, but for messages to itself.
    if (comm.size() > 1 || is_message(call.signature.verb)) { label.journal.begin(label, call); }
    return true;
}
/// Does the common work after the engine has accepted the call.
[[gnu::always_inline]] inline void end(const Communicator& comm, const Call& call, const void* input, void* output,
                                       std::uint64_t moved) {
    const engine::CommunicatorLabel& label = comm.label();
    comm.size() > 1 ? label.journal.end(label, call, moved) : label.journal.recorder().end(call);
    recorder::CallObserver* const observer = label.journal.observer();
    if (observer != nullptr) [[unlikely]] { observer->after({call, label.axes, &comm, input, output}); }
}
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
[[gnu::noinline]] inline void make_recorded_call(const Communicator& comm, const Call& call, const void* input,
                                                 void* output, const EngineCall& made) {
    if (!begin(comm, call, input, output)) { return; }
    const OpenCall open(comm, call);
    end(comm, call, input, output, made.call(made.member, *comm.verbs()));
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
