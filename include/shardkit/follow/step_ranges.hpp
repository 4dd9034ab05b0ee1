// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/detail/not_copied.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// A stream with named ranges, under which a profiler shows the work that the host gave it. Ranges that are pushed
/// are nested; those that are started may end in any order.
template <class S>
concept NamesRanges = requires(const char* name, std::uint64_t started) {
    S::Ranges::push(name);
    S::Ranges::pop();
    { S::Ranges::start(name) }
    noexcept;
    S::Ranges::end(started);
};

/// Shows a step's operations as ranges in a profiler, with the names that schedules print: communication, the norm
/// and the updates while the library gives their work to the streams, and a window from its use to its close.
/// Cost:    stores the names once; a step allocates nothing. Streams without ranges cost nothing.
template <class Stream>
class StepRanges {
    static constexpr bool named = NamesRanges<Stream>;

  public:
    StepRanges(const Schedule& schedule, std::span<const GroupDescription> groups) {
        if constexpr (named) {
            std::vector<std::vector<std::size_t>> open(groups.size());  // open windows, by group
            for (std::size_t i = 0; i < schedule.size(); ++i) {
                const schedule::Op& op = schedule[i];
                names_.push_back(op.act == Act::update ? std::string(name(op.act)) : describe(op, groups));
                opened_.push_back(i);
                if (op.act == Act::use) { open[op.group].push_back(i); }
                if (op.act == Act::close && !open[op.group].empty()) {
                    opened_[i] = open[op.group].back();
                    open[op.group].pop_back();
                }
            }
            windows_.resize(schedule.size());
        }
    }

    /// Covers what an operation gives to the streams, even if that throws.
    class [[nodiscard]] Scope : NotCopied {
      public:
        explicit Scope(const char* name) {
            if constexpr (named) { Stream::Ranges::push(name); }
        }
        ~Scope() {
            if constexpr (named) { Stream::Ranges::pop(); }
        }
    };
    Scope scope(std::size_t op) const { return Scope(named ? names_[op].c_str() : nullptr); }

    /// Mark the begin and the end of a verb's work; one verb at a time.
    void begin(std::size_t op) noexcept {
        if constexpr (named) {
            Stream::Ranges::push(names_[op].c_str());
            begun_ = true;
        }
    }
    void end() noexcept {
        if constexpr (named) {
            if (begun_) { Stream::Ranges::pop(); }
            begun_ = false;
        }
    }
    /// Mark the begin and the end of the window of a use.
    void open(std::size_t use) noexcept {
        if constexpr (named) { windows_[use] = {Stream::Ranges::start(names_[use].c_str()), true}; }
    }
    void close(std::size_t close) noexcept {
        if constexpr (named) { end(windows_[opened_[close]]); }
    }
    /// Ends all ranges that an abandoned step has begun.
    void end_all() noexcept {
        if constexpr (named) {
            end();
            for (Window& window : windows_) { end(window); }
        }
    }

  private:
    struct Window {
        std::uint64_t started = 0;
        bool open = false;
    };
    void end(Window& window) noexcept {
        if (window.open) { Stream::Ranges::end(window.started); }
        window.open = false;
    }

    std::vector<std::string> names_;   // by operation
    std::vector<std::size_t> opened_;  // the use, by close
    std::vector<Window> windows_;      // by use
    bool begun_ = false;
};

}  // namespace shardkit::detail
