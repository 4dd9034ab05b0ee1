// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/stream.hpp>

namespace shardkit {

/// Holds the streams that a rank's work and its collectives are given to; the library inserts the events between
/// them. Default streams of the type where the engine needs no others.
template <class Stream>
struct Streams {
    Stream compute{};
    Stream communication{};            ///< of gathers, and of what is neither a gather nor a reduction
    Stream reduction = communication;  ///< of gradients' reductions and of the norm's sum

    /// Orders what the others are given from here on behind what the compute stream was given before.
    void fork() const {
        communication.wait(compute.record());
        reduction.wait(compute.record());
    }
    /// Orders what the compute stream is given from here on behind what the others were given before.
    void join() const {
        compute.wait(communication.record());
        compute.wait(reduction.record());
    }
    /// Lets the host wait for all that they were given, also where one of them tells of a failure.
    /// @throws what the first `synchronize` that fails throws
    template <class... Where>
    void synchronize(const Where&... where) const {
        detail::synchronize_all([&](const Stream& stream) { stream.synchronize(where...); }, communication, reduction,
                                compute);
    }
    /// Waits likewise, but throws nothing; what their work threw is left to the next wait where they can keep it,
    /// else dropped.
    void settle() const noexcept { detail::settle_all(communication, reduction, compute); }
};

}  // namespace shardkit
