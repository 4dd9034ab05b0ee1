// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/moved.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

class Journal;

/// The name of a rank's communicators over one set of axes, and the journal that records their calls and keeps this
/// label at a stable address.
struct CommunicatorLabel {
    Journal& journal;
    std::size_t first_row;  ///< index in the journal's traffic log
    std::string axes;
};

/// One of a rank's last calls.
struct RecentCall {
    std::uint64_t number = 0;  ///< counts this rank's calls over all its communicators, from 0
    std::string axes;
    Signature signature{};
    SourceLocation where{};
    std::string subject;  ///< CallSubject::text
};

/// A call as an observer sees it.
struct ObservedCall {
    const Call& call;
    std::string_view axes;
    const void* communicator;  ///< the engine's Communicator of the call
    const void* input;         ///< null if the verb works in place or has no input
    void* output;              ///< null if the verb has no output
};

/// Observes a rank's calls before and after the engine, for measurements. Splits are not observed, as they make
/// communicators.
class CallObserver {
  public:
    CallObserver() = default;
    CallObserver(const CallObserver&) = delete;
    CallObserver& operator=(const CallObserver&) = delete;
    virtual ~CallObserver() = default;

    /// Called before the engine. Returning false leaves the call out: it moves nothing and is not logged. All ranks
    /// of the group must leave it out then.
    virtual bool before(const ObservedCall& seen) = 0;
    /// Called after the engine has accepted the call; not if it has refused it.
    virtual void after(const ObservedCall&) {}
};

/// Records what one rank has called and moved over all its communicators: their labels, the traffic log, the last
/// calls, and the observer of calls. The engine keeps one for each rank; only the rank's thread uses it.
class Journal {
  public:
    static constexpr std::size_t recent = 64;

    Journal() = default;
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

    /// Returns the label of `axes`, always the same object, and allocates its rows, so that no verb has to.
    const CommunicatorLabel& label(std::string_view axes) {
        for (const CommunicatorLabel& label : labels_) {
            if (label.axes == axes) { return label; }
        }
        return labels_.emplace_front(CommunicatorLabel{*this, traffic_.add_communicator(axes), std::string(axes)});
    }

    /// Returns the subject with this text, always the same object.
    const CallSubject& subject(std::string_view text) {
        if (subject_count_ >= subjects_.size()) { spread_subjects(); }
        Subjects& alike = subjects_of(CallSubject::hash_of(text));
        for (const CallSubject& subject : alike) {
            if (subject.text == text) { return subject; }
        }
        alike.emplace_front(text);
        ++subject_count_;
        return alike.front();
    }

    /// Returns the book of the rank's statements.
    detail::StatementBook& statements() noexcept { return statements_; }

    TrafficLog& traffic() noexcept { return traffic_; }
    const TrafficLog& traffic() const noexcept { return traffic_; }

    /// Records a call before the engine has it, so that a call that fails or hangs is the last one.
    void begin(const CommunicatorLabel& label, const Call& call) noexcept {
        Entry& entry = entries_[calls_++ % recent];
        entry.label = &label;
        entry.call = call;
    }
    /// Counts a call that the engine has accepted.
    void end(const CommunicatorLabel& label, const Call& call, const Moved& moved) noexcept {
        traffic_.record(label.first_row, call.signature.verb, ByteCount(call.payload), ByteCount(moved.bytes),
                        ByteCount(moved.between_hosts));
    }

    /// Returns the last calls over groups of more than one rank, at most `recent`, the oldest first.
    std::vector<RecentCall> recent_calls() const {
        std::vector<RecentCall> calls;
        for (std::uint64_t i = calls_ - std::min<std::uint64_t>(calls_, recent); i < calls_; ++i) {
            const Entry& entry = entries_[i % recent];
            calls.push_back({i, entry.label->axes, entry.call.signature, entry.call.where,
                             std::string(detail::text_of(entry.call.subject))});
        }
        return calls;
    }

    /// Makes the observer see every call from now on; null: none. Returns the observer before.
    CallObserver* observe(CallObserver* observer) noexcept { return std::exchange(observer_, observer); }
    CallObserver* observer() const noexcept { return observer_; }

  private:
    struct Entry {
        const CommunicatorLabel* label = nullptr;
        Call call{};
    };

    using Subjects = std::forward_list<CallSubject>;

    Subjects& subjects_of(std::uint32_t hash) noexcept { return subjects_[hash % subjects_.size()]; }
    /// Doubles the number of lists, so that each stays short however many groups a rank makes. Subjects keep their
    /// addresses.
    void spread_subjects() {
        std::vector<Subjects> before(2 * subjects_.size() + 1);
        before.swap(subjects_);
        for (Subjects& alike : before) {
            while (!alike.empty()) {
                Subjects& to = subjects_of(alike.front().hash);
                to.splice_after(to.before_begin(), alike, alike.before_begin());
            }
        }
    }

    TrafficLog traffic_;
    CallObserver* observer_ = nullptr;
    std::uint64_t calls_ = 0;
    std::array<Entry, recent> entries_{};
    std::forward_list<CommunicatorLabel> labels_;
    std::vector<Subjects> subjects_;  // by hash
    std::size_t subject_count_ = 0;
    detail::StatementBook statements_;
};

/// Returns a text with a line for each call: number, call, axes.
inline std::string recent_calls_table(const std::vector<RecentCall>& calls) {
    std::string table;
    for (const RecentCall& call : calls) {
        table += detail::concat("  ", call.number, "  ", describe(call.signature, call.where, call.subject), " over ",
                                call.axes, "\n");
    }
    return table.empty() ? "  (nothing)\n" : table;
}

/// The engine keeps a journal for each rank. Without one, the calls of its communicators are not counted.
template <class C>
concept KeepsJournal = requires(const C comm) {
    { comm.label() } -> std::same_as<const CommunicatorLabel&>;
};

namespace detail {

/// Returns the subject with that text for calls over `comm`; null if the engine keeps no journal.
template <class C>
const CallSubject* subject_of(const C& comm, std::string_view text) {
    if constexpr (KeepsJournal<C>) {
        return &comm.label().journal.subject(text);
    } else {
        return nullptr;
    }
}

/// Returns the book of statements of this rank of `comm`; null if the engine keeps no journal.
template <class C>
StatementBook* book_of(const C& comm) {
    if constexpr (KeepsJournal<C>) {
        return &comm.label().journal.statements();
    } else {
        return nullptr;
    }
}

/// Does the common work of every verb before the call of the engine's member, as `end` does the work after it.
/// Returns false when an observer leaves the call out.
template <class C>
[[gnu::always_inline]] inline bool begin(const C& comm, const Call& call, const void* input, void* output) {
    if constexpr (KeepsJournal<C>) {
        const CommunicatorLabel& label = comm.label();
        CallObserver* const observer = label.journal.observer();
        if (observer != nullptr) [[unlikely]] {
            if (!observer->before({call, label.axes, &comm, input, output})) { return false; }
        }
        if (comm.size() > 1) { label.journal.begin(label, call); }
    }
    return true;
}
/// Does the common work after the engine has accepted the call.
template <class C>
[[gnu::always_inline]] inline void end(const C& comm, const Call& call, const void* input, void* output,
                                       const Moved& moved) {
    if constexpr (KeepsJournal<C>) {
        const CommunicatorLabel& label = comm.label();
        if (comm.size() > 1) { label.journal.end(label, call, moved); }
        CallObserver* const observer = label.journal.observer();
        if (observer != nullptr) [[unlikely]] { observer->after({call, label.axes, &comm, input, output}); }
    }
}
/// Makes an engine's call. The engine's member returns what was moved; if it returns nothing, `otherwise` does.
template <class C, class Member, class Otherwise>
[[gnu::always_inline]] inline void make_call(const C& comm, const Call& call, const void* input, void* output,
                                             const Member& member, const Otherwise& otherwise) {
    if (!begin(comm, call, input, output)) { return; }
    if constexpr (std::is_void_v<std::invoke_result_t<const Member&>>) {
        member();
        end(comm, call, input, output, otherwise());
    } else {
        end(comm, call, input, output, member());
    }
}

/// Makes a call whose member returns what was moved, unless the engine keeps no journal.
template <class C, class Member>
[[gnu::always_inline]] inline void make_call(const C& comm, const Call& call, const void* input, void* output,
                                             const Member& member) {
    if (!begin(comm, call, input, output)) { return; }
    if constexpr (KeepsJournal<C>) {
        end(comm, call, input, output, member());
    } else {
        member();
    }
}

/// Checks that `full` is as long as all ranks' shards together.
template <class C>
[[gnu::always_inline]] inline void check_full(const C& comm, std::string_view verb, std::size_t full,
                                              std::size_t shard, SourceLocation where) {
    if (full == shard * comm.size()) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": full has ", full, " elements, expected ",
                           comm.size(), " ranks x ", shard, " of shard");
}
/// Checks that the number of ranks divides the number of elements.
template <class C>
[[gnu::always_inline]] inline void check_multiple(const C& comm, std::string_view verb, std::size_t elements,
                                                  SourceLocation where) {
    if (elements % comm.size() == 0) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": ", elements, " elements, expected a multiple of ",
                           comm.size(), " ranks");
}
/// Checks that `comm` has the rank. `what` names it: "peer".
template <class C>
[[gnu::always_inline]] inline void check_rank(const C& comm, std::string_view verb, std::string_view what,
                                              std::size_t rank, SourceLocation where) {
    if (rank < comm.size()) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": ", what, " ", rank, ", expected a rank below ",
                           comm.size());
}

}  // namespace detail

}  // namespace shardkit
