// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit {

/// The streams for a rank's work and its collectives. The library inserts the events between them. Where the engine
/// needs no others, they are default streams.
struct Streams {
    Stream compute{};
    Stream communication{};            ///< for gathers, and all that is neither a gather nor a reduction
    Stream reduction = communication;  ///< for reductions of gradients, and the norm's sum

    /// Makes later work of the other streams wait for the earlier work of the compute stream.
    void fork() const {
        communication.wait(compute.record());
        reduction.wait(compute.record());
    }
    /// Makes later work of the compute stream wait for the earlier work of the others.
    void join() const {
        compute.wait(communication.record());
        compute.wait(reduction.record());
    }
    /// Makes the host wait for all work of the streams, even if one of them reports a failure.
    /// @throws what the first failing `synchronize` throws
    void synchronize(SourceLocation where = SourceLocation::current()) const {
        std::exception_ptr failure;
        for (const Stream* const stream : {&communication, &reduction, &compute}) {
            try {
                stream->synchronize(where);
            } catch (...) {
                if (!failure) { failure = std::current_exception(); }
            }
        }
        if (failure) { std::rethrow_exception(failure); }
    }
    /// Waits likewise, but does not throw: an exception of that work comes out of the next wait.
    void settle() const noexcept {
        communication.settle();
        reduction.settle();
        compute.settle();
    }
};

}  // namespace shardkit
