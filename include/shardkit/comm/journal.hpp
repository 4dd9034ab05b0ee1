// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/recorder.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/owned.hpp>

namespace shardkit::recorder {

/// A call as an observer sees it.
struct ObservedCall {
    const Call& call;
    std::string_view axes;
    const void* communicator;  ///< the Communicator of the call
    const void* input;         ///< null if the verb works in place or has no input
    void* output;              ///< null if the verb has no output
};

/// Observes a rank's calls before and after the engine, for measurements. Splits are not observed, as they make
/// communicators.
class CallObserver : shardkit::detail::NotCopied {
  public:
    virtual ~CallObserver() = default;

    /// Called before the engine. Returning false leaves the call out: it moves nothing and is not logged. All ranks
    /// of the group must leave it out then.
    virtual bool before(const ObservedCall& seen) = 0;
    /// Called after the engine has accepted the call; not if it has refused it.
    virtual void after(const ObservedCall&) {}
};

}  // namespace shardkit::recorder

namespace shardkit::engine {

/// Records what one rank has called and moved over all its communicators: their labels, the traffic log, the last
/// calls, the observer of calls, and how long the rank waits for others. The engine keeps one for each rank; only the
/// rank's thread uses it, except that any thread may read the last calls and how long it waits.
class Journal : shardkit::detail::NotCopied {
  public:
    /// Returns the label of `axes` over these ranks of the world, always the same object, and allocates its rows, so
    /// that no verb has to.
    const CommunicatorLabel& label(std::string_view axes, std::span<const std::size_t> members = {}) {
        for (const auto& label : labels_) {
            if (label->axes == axes &&
                std::equal(members.begin(), members.end(), label->members->begin(), label->members->end())) {
                return *label;
            }
        }
        const auto made = std::make_shared<const std::vector<std::size_t>>(members.begin(), members.end());
        labels_.push_back(detail::Owned<CommunicatorLabel>(
            new CommunicatorLabel{*this, traffic_.add_communicator(axes), std::string(axes), made}));
        return *labels_.back();
    }

    /// Returns the subject with this text, always the same object.
    const CallSubject& subject(std::string_view text) {
        auto& alike = subjects_[CallSubject::hash_of(text) % subjects_.size()];
        for (const auto& subject : alike) {
            if (subject->text == text) { return *subject; }
        }
        alike.push_back(detail::Owned<CallSubject>(new CallSubject(text)));
        return *alike.back();
    }

    /// Returns the book of the rank's statements.
    detail::StatementBook& statements() noexcept { return statements_; }
    const detail::StatementBook& statements() const noexcept { return statements_; }

    TrafficLog& traffic() noexcept { return traffic_; }
    const TrafficLog& traffic() const noexcept { return traffic_; }

    /// Records a call before the engine has it, so that a call that fails or hangs is the last one.
    [[gnu::noinline]] void begin(const CommunicatorLabel& label, const Call& call) noexcept {
        const bool message = detail::is_message(call.signature.verb);
        recorder_.begin(label, message ? label.collectives : label.collectives++, call);
    }
    /// Counts a call that the engine has accepted.
    [[gnu::noinline]] void end(const CommunicatorLabel& label, const Call& call, std::uint64_t moved) noexcept {
        recorder_.end(call);
        traffic_.record(label.first_row, call.signature.verb, ByteCount(call.payload), ByteCount(moved));
    }

    /// Returns the flight recorder, which has the last calls.
    detail::Recorder& recorder() noexcept { return recorder_; }
    const detail::Recorder& recorder() const noexcept { return recorder_; }

    /// Returns how long the rank waits for others now: `usual`, a time of the engine's options, or what a Deadline
    /// says instead; a hundred years at most. Any thread may call it.
    std::chrono::milliseconds limit(std::chrono::milliseconds usual) const noexcept {
        const std::int64_t phase = phase_limit_.load(std::memory_order_relaxed);
        return detail::bounded_wait(phase == 0 ? usual : std::chrono::milliseconds(phase));
    }
    /// Replaces the usual times from now on, or with 0 no longer. Returns what was said before.
    std::int64_t exchange_limit(std::int64_t milliseconds) noexcept {
        return phase_limit_.exchange(milliseconds, std::memory_order_relaxed);
    }

    /// Makes the observer see every call from now on; null: none. Returns the observer before.
    recorder::CallObserver* observe(recorder::CallObserver* observer) noexcept {
        return std::exchange(observer_, observer);
    }
    recorder::CallObserver* observer() const noexcept { return observer_; }

  private:
    TrafficLog traffic_;
    recorder::CallObserver* observer_ = nullptr;
    std::atomic<std::int64_t> phase_limit_{0};
    detail::Recorder recorder_;
    detail::List<detail::Owned<CommunicatorLabel>> labels_;
    // By hash, in so many lists that each is short however many groups a rank makes.
    detail::List<detail::List<detail::Owned<CallSubject>>> subjects_{2048};
    detail::StatementBook statements_;
};

}  // namespace shardkit::engine

namespace shardkit::detail {

/// Returns the subject with that text for calls over `comm`.
template <class C>
const engine::CallSubject* subject_of(const C& comm, std::string_view text) {
    return &comm.label().journal.subject(text);
}

/// Returns the book of statements of this rank of `comm`.
template <class C>
StatementBook* book_of(const C& comm) {
    return &comm.label().journal.statements();
}

}  // namespace shardkit::detail
