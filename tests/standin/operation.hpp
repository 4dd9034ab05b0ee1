// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "standin.hpp"

namespace standin {

struct Capture;
struct State;

/// A place in a stream's queue, which events and communicators remember.
struct Mark {
    CUstream_st* stream;  // alive until done
    std::uint64_t position;
    bool done = false;
    std::chrono::steady_clock::time_point when{};  // it was done
};

/// Bytes that an operation reads or writes.
struct Range {
    const void* begin;
    std::size_t bytes;

    bool overlaps(const Range& other) const {
        const auto a = reinterpret_cast<std::uintptr_t>(begin);
        const auto b = reinterpret_cast<std::uintptr_t>(other.begin);
        return a < b + other.bytes && b < a + bytes;
    }
};

/// Work in a stream's queue.
struct Operation {
    std::shared_ptr<Mark> mark;

    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    virtual ~Operation() = default;

    /// Does the work, or as much as is possible now. True: it is done, the stream goes on.
    virtual bool run(State& state) = 0;
    virtual bool uses(const Range&) const { return false; }
};

/// A host function, a copy, or nothing but a place in the queue (an event's record).
struct Work final : Operation {
    std::function<void()> function;
    std::vector<Range> ranges;

    explicit Work(std::function<void()> f, std::vector<Range> r = {})
        : function(std::move(f)), ranges(std::move(r)) {}
    bool run(State&) override;
    bool uses(const Range& range) const override;
};

struct WaitForMark final : Operation {
    std::shared_ptr<Mark> awaited;

    explicit WaitForMark(std::shared_ptr<Mark> m) : awaited(std::move(m)) {}
    bool run(State& state) override;
};

}  // namespace standin

struct CUstream_st {
    int device = 0;
    unsigned int flags = 0;
    int priority = 0;
    standin::Pace pace = standin::Pace::lazy;
    bool destroyed = false;
    bool held = false;
    bool advancing = false;
    int polls_left = 0;
    std::deque<std::unique_ptr<standin::Operation>> queue;
    std::uint64_t queued = 0;  // operations ever queued
    std::uint64_t done = 0;
    std::shared_ptr<standin::Capture> capture;
    std::vector<std::size_t> tail;  // the capture's nodes that the next one follows
};
