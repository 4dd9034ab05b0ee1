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

/// Holds the name of a rank's communicators over one set of axes, and where their calls are written down. The journal
/// keeps it, at an address that stays.
struct CommunicatorLabel {
    Journal& journal;
    std::size_t first_row;  ///< in the journal's log
    std::string axes;
};

/// Holds one of a rank's last calls.
struct RecentCall {
    std::uint64_t number = 0;  ///< of the calls of this rank, over all its communicators; counted from 0
    std::string axes;
    Signature signature{};
    SourceLocation where{};
    std::string subject;  ///< CallSubject::text
};

/// Holds a call as an observer sees it.
struct ObservedCall {
    const Call& call;
    std::string_view axes;
    const void* communicator;  ///< the engine's Communicator that the verb was given
    const void* input;         ///< null where the verb is in place or has none
    void* output;              ///< null where the verb has none
};

/// Sees a rank's calls on their way to the engine and back; for measurements. Not splits: they make communicators.
class CallObserver {
  public:
    CallObserver() = default;
    CallObserver(const CallObserver&) = delete;
    CallObserver& operator=(const CallObserver&) = delete;
    virtual ~CallObserver() = default;

    /// Is called before the engine; false leaves the call out: it moves nothing and is not logged. Then all ranks of
    /// the group leave it out.
    virtual bool before(const ObservedCall& seen) = 0;
    /// The engine has taken the call; not after one that it refused.
    virtual void after(const ObservedCall&) {}
};

/// Records what one rank has called and moved, over all its communicators: their labels, the traffic log, the last
/// calls, and whom to show the next ones. One for each rank, kept by its engine; used by the rank's thread only.
class Journal {
  public:
    static constexpr std::size_t recent = 64;

    Journal() = default;
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

    /// Returns the label of `axes`, always the same one; makes room for its rows, so that no verb allocates.
    const CommunicatorLabel& label(std::string_view axes) {
        for (const CommunicatorLabel& label : labels_) {
            if (label.axes == axes) { return label; }
        }
        return labels_.emplace_front(CommunicatorLabel{*this, traffic_.add_communicator(axes), std::string(axes)});
    }

    /// Returns what calls are for, always the same object for one text.
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

    /// Returns what the rank states beside its calls.
    detail::StatementBook& statements() noexcept { return statements_; }

    TrafficLog& traffic() noexcept { return traffic_; }
    const TrafficLog& traffic() const noexcept { return traffic_; }

    /// Notes a call before the engine has it, so that one that fails or hangs is the last.
    void begin(const CommunicatorLabel& label, const Call& call) noexcept {
        Entry& entry = entries_[calls_++ % recent];
        entry.label = &label;
        entry.call = call;
    }
    /// Counts a call that the engine has taken.
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

    /// Shows the observer every call from now on; null: nobody. Returns who was shown them before.
    CallObserver* observe(CallObserver* observer) noexcept { return std::exchange(observer_, observer); }
    CallObserver* observer() const noexcept { return observer_; }

  private:
    struct Entry {
        const CommunicatorLabel* label = nullptr;
        Call call{};
    };

    using Subjects = std::forward_list<CallSubject>;

    Subjects& subjects_of(std::uint32_t hash) noexcept { return subjects_[hash % subjects_.size()]; }
    /// Twice the lists, so that one has few, however many groups a rank makes. Subjects keep their addresses.
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

/// Writes a line for each call: number, call, axes.
inline std::string recent_calls_table(const std::vector<RecentCall>& calls) {
    std::string table;
    for (const RecentCall& call : calls) {
        table += detail::concat("  ", call.number, "  ", describe(call.signature, call.where, call.subject), " over ",
                                call.axes, "\n");
    }
    return table.empty() ? "  (nothing)\n" : table;
}

/// The engine keeps a journal for each rank; without one, the calls of its communicators are not counted.
template <class C>
concept KeepsJournal = requires(const C comm) {
    { comm.label() } -> std::same_as<const CommunicatorLabel&>;
};

namespace detail {

/// Returns the subject of calls over `comm` for that text; null where the engine keeps no journal.
template <class C>
const CallSubject* subject_of(const C& comm, std::string_view text) {
    if constexpr (KeepsJournal<C>) {
        return &comm.label().journal.subject(text);
    } else {
        return nullptr;
    }
}

/// Returns where a rank of `comm` writes down what it states; null where the engine keeps no journal.
template <class C>
StatementBook* book_of(const C& comm) {
    if constexpr (KeepsJournal<C>) {
        return &comm.label().journal.statements();
    } else {
        return nullptr;
    }
}

/// Does what every verb does before it calls the engine's member, as `end` does what follows: what verbs have in
/// common stands here. False when an observer leaves the call out.
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
/// The engine has taken the call.
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
/// Makes an engine's call. What it moved is what the engine's member returns, or, where that returns nothing, what
/// `otherwise` says.
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

/// Makes a call whose member returns what it moved, unless the engine keeps no journal.
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

/// Refuses a `full` that is not as long as all ranks' shards.
template <class C>
[[gnu::always_inline]] inline void check_full(const C& comm, std::string_view verb, std::size_t full,
                                              std::size_t shard, SourceLocation where) {
    if (full == shard * comm.size()) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": full has ", full, " elements, expected ",
                           comm.size(), " ranks x ", shard, " of shard");
}
/// Refuses elements that the ranks' number does not divide.
template <class C>
[[gnu::always_inline]] inline void check_multiple(const C& comm, std::string_view verb, std::size_t elements,
                                                  SourceLocation where) {
    if (elements % comm.size() == 0) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": ", elements, " elements, expected a multiple of ",
                           comm.size(), " ranks");
}
/// Refuses a rank that `comm` does not have; `what`: "peer"
template <class C>
[[gnu::always_inline]] inline void check_rank(const C& comm, std::string_view verb, std::string_view what,
                                              std::size_t rank, SourceLocation where) {
    if (rank < comm.size()) [[likely]] { return; }
    throw_invalid_argument(where, verb, " over ", comm.axes(), ": ", what, " ", rank, ", expected a rank below ",
                           comm.size());
}

}  // namespace detail

}  // namespace shardkit
