// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/schedule/schedule.hpp>

namespace shardkit::detail {

/// A stream of whose work a profiler shows what the host gave it in a named range. Ranges that are pushed lie in each
/// other; those that are started end in any order.
template <class S>
concept NamesRanges = requires(const char* name, std::uint64_t started) {
    S::Ranges::push(name);
    S::Ranges::pop();
    { S::Ranges::start(name) }
    noexcept;
    S::Ranges::end(started);
};

/// A step's operations as ranges of a profiler, under the names that schedules print: what communicates, the norm and
/// the updates for as long as the library gives their work to the streams, and a window from its use to its close.
/// Cost:    the names, once; a step allocates nothing. On streams without ranges nothing is kept or done.
template <class Stream>
class StepRanges {
    static constexpr bool named = NamesRanges<Stream>;

  public:
    StepRanges(const Schedule& schedule, std::span<const GroupDescription> groups) {
        if constexpr (named) {
            std::vector<std::vector<std::size_t>> open(groups.size());  // windows, by group
            for (std::size_t i = 0; i < schedule.size(); ++i) {
                const Op& op = schedule[i];
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

    /// Around what an operation gives to the streams, also where that throws.
    class [[nodiscard]] Scope {
      public:
        explicit Scope(const char* name) {
            if constexpr (named) { Stream::Ranges::push(name); }
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() {
            if constexpr (named) { Stream::Ranges::pop(); }
        }
    };
    Scope scope(std::size_t op) const { return Scope(named ? names_[op].c_str() : nullptr); }

    /// A verb's work begins, and is given. One at a time.
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
    /// The window of a use shows its parameters, and that of a close does no more.
    void open(std::size_t use) noexcept {
        if constexpr (named) { windows_[use] = {Stream::Ranges::start(names_[use].c_str()), true}; }
    }
    void close(std::size_t close) noexcept {
        if constexpr (named) { end(windows_[opened_[close]]); }
    }
    /// What a step that was left has begun.
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
    std::vector<std::size_t> opened_;  // by close: its use
    std::vector<Window> windows_;      // by use
    bool begun_ = false;
};

}  // namespace shardkit::detail
