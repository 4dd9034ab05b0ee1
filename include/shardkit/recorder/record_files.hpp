// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <unistd.h>

#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/ticks.hpp>
#include <shardkit/detail/watch_thread.hpp>
#include <shardkit/recorder/rank_record.hpp>

namespace shardkit::detail {

/// Counts the requests to write records; a signal handler may add to it.
inline std::atomic<std::uint32_t> record_requests{0};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Takes SIGUSR1 as a request for records while it lives, unless the program has a handler of its own.
class RecordSignal : NotCopied {
  public:
    [[gnu::cold]] RecordSignal() {
        const std::lock_guard lock(mutex);
        if (users++ > 0) { return; }
        struct sigaction now {};
        if (sigaction(SIGUSR1, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) {
            return;
        }
        struct sigaction ours {};
        ours.sa_handler = [](int) { record_requests.fetch_add(1, std::memory_order_relaxed); };
        ours.sa_flags = SA_RESTART;
        sigemptyset(&ours.sa_mask);
        taken = sigaction(SIGUSR1, &ours, nullptr) == 0;
    }
    [[gnu::cold]] ~RecordSignal() {
        const std::lock_guard lock(mutex);
        if (--users > 0 || !std::exchange(taken, false)) { return; }
        std::signal(SIGUSR1, SIG_DFL);
    }

  private:
    static inline std::mutex mutex;
    static inline std::size_t users = 0;
    static inline bool taken = false;
};

}  // namespace shardkit::detail

namespace shardkit::recorder {

/// Asks every World of this process that has a prefix for its files to write its ranks' records soon. A signal
/// handler may call it.
inline void request_records() noexcept { detail::record_requests.fetch_add(1, std::memory_order_relaxed); }

/// Returns the name of a rank's file: "PREFIX-rank-3.json".
[[gnu::cold]] inline std::string record_file(std::string_view prefix, std::size_t rank) {
    return detail::concat(prefix, "-rank-", rank, ".json");
}

/// Writes a record to its file: whole, or not at all. Another file of that name is replaced.
/// @throws FileError
[[gnu::cold]] inline void write_record(std::string_view prefix, const RankRecord& record,
                                       SourceLocation where = SourceLocation::current()) {
    const std::string path = record_file(prefix, record.rank);
    const std::string temporary = detail::concat(path, ".tmp-", static_cast<std::uint64_t>(getpid()));
    const std::string text = to_json(record);
    std::FILE* const file = std::fopen(temporary.c_str(), "wb");
    bool whole = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    whole = file != nullptr && std::fclose(file) == 0 && whole;
    if (!whole || std::rename(temporary.c_str(), path.c_str()) != 0) {
        std::remove(temporary.c_str());
        throw FileError(path, "a flight record could not be written", where);
    }
}

}  // namespace shardkit::recorder

namespace shardkit::detail {

/// Returns a number that no other run has, but by chance.
inline std::uint64_t new_run() noexcept {
    Fnv fnv;
    for (const std::uint64_t part : {TickClock::since_1970(), ticks(), static_cast<std::uint64_t>(getpid())}) {
        fnv.add(part);
    }
    return fnv.hash | 1U;
}

/// Writes the record of one rank of a process of its own: when it is asked for, by a thread that looks every
/// `interval`, and when another rank of the job has found that something is wrong, which a file says that all see.
class RecordWriter : NotCopied {
  public:
    static constexpr std::chrono::milliseconds interval{50};

    /// Begins for a rank's journal, which must outlive it. An empty prefix: nothing is written. What an earlier run
    /// has left there is removed.
    /// @param refresh  called by any thread before the journal is read
    RecordWriter(const char* engine, std::string prefix, std::size_t rank, std::size_t ranks,
                 const engine::Journal& journal, std::function<void()> refresh = {})
        : engine_(engine),
          prefix_(std::move(prefix)),
          rank_(rank),
          ranks_(ranks),
          journal_(journal),
          refresh_(std::move(refresh)) {
        if (prefix_.empty()) { return; }
        std::remove(recorder::record_file(prefix_, rank_).c_str());
        if (rank_ == 0) { std::remove(trouble().c_str()); }
        signal_.emplace();  // here, not in the thread: what is asked for from now on is seen
        seen_ = record_requests.load(std::memory_order_relaxed);
        watch_.emplace([this](const auto& sleep) {
            while (sleep(interval)) { look(); }
        });
    }
    /// Says which run this is, as soon as the ranks have agreed on a number: files of another run are passed over.
    void set_run(std::uint64_t run) noexcept { run_ = run; }
    /// Writes the record, the first time, and tells the other ranks to write theirs. A file that cannot be written is
    /// no failure of its own: the error that is told has another reason.
    /// @param ended  whether the rank's function has ended
    void tell(std::string_view why, bool ended = false) noexcept {
        if (prefix_.empty() || told_.exchange(true)) { return; }
        write(why, ended);
        const std::string run = concat(run_.load());
        if (std::FILE* const mark = std::fopen(trouble().c_str(), "wb")) {
            std::fwrite(run.data(), 1, run.size(), mark);
            std::fclose(mark);
        }
    }
    /// Says that the rank's function has returned: records from now on say so.
    void returned() noexcept { returned_ = true; }
    /// Tells likewise that the exception which is being handled ends the rank's function.
    void tell_exception() noexcept {
        try {
            throw;
        } catch (const std::exception& error) { tell(error.what(), true); } catch (...) {
            tell("an exception that is no std::exception", true);
        }
    }
    /// Tells why this rank gives up, and waits for the others' records for a short time, as its end may end them.
    /// Returns where the records are, as the end of an error's text; "" without a prefix.
    std::string tell_and_wait(std::string_view why) noexcept {
        if (prefix_.empty()) { return {}; }
        tell(why);
        try {
            const auto is_there = [&](std::size_t rank) {
                return access(recorder::record_file(prefix_, rank).c_str(), R_OK) == 0;
            };
            for (auto waited = std::chrono::milliseconds(0); waited < 6 * interval; waited += interval / 5) {
                std::size_t there = 0;
                while (there < ranks_ && is_there(there)) { ++there; }
                if (there == ranks_) { break; }
                std::this_thread::sleep_for(interval / 5);
            }
            return concat("; the ranks' last calls are in ", prefix_, "-rank-*.json, for who_is_missing");
        } catch (...) { return {}; }
    }

  private:
    std::string trouble() const { return concat(prefix_, "-trouble"); }
    /// Returns whether another rank of this run has told of trouble.
    bool is_told() const noexcept {
        std::FILE* const mark = std::fopen(trouble().c_str(), "rb");
        if (mark == nullptr) { return false; }
        unsigned long long run = 0;
        const bool read = std::fscanf(mark, "%llu", &run) == 1;
        std::fclose(mark);
        return read && run == run_;
    }
    void write(std::string_view why, bool ended) noexcept {
        try {
            if (refresh_) { refresh_(); }
            const std::lock_guard lock(mutex_);
            const std::string reason(returned_ ? "its function has returned" : why);
            recorder::write_record(prefix_, {engine_, rank_, ranks_, reason, ended || returned_,
                                             TickClock::since_1970(), journal_.recorder().recent_calls(), run_});
        } catch (...) {}  // NOLINT(bugprone-empty-catch): see tell
    }
    void look() noexcept {
        const std::uint32_t asked = record_requests.load(std::memory_order_relaxed);
        if (!told_ && is_told() && !told_.exchange(true)) {
            write("another rank of the job has a failure", false);
        } else if (asked != seen_) {
            write("asked for", false);
        }
        seen_ = asked;
    }

    const char* engine_;
    std::string prefix_;
    std::size_t rank_;
    std::size_t ranks_;
    const engine::Journal& journal_;
    std::function<void()> refresh_;
    std::atomic<std::uint64_t> run_{new_run()};
    std::mutex mutex_;
    std::optional<RecordSignal> signal_;
    std::uint32_t seen_ = 0;
    std::atomic<bool> told_{false};
    std::atomic<bool> returned_{false};
    std::optional<WatchThread> watch_;  // last: it uses all the others
};

}  // namespace shardkit::detail
