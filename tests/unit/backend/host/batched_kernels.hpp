// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/rank/launch_batch.hpp>

#include "enqueued_kernels.hpp"

namespace shardkit::test {

/// An update as an entry of a batch, of three works.
template <class Update, class Spans>
struct UpdateEntry {
    std::span<const rules::UpdateRange> ranges;
    const Update* updates;
    const std::uint32_t* skip;
    Spans spans;
    std::uint64_t end;
};

/// test::EnqueuedKernels with the batches of a GPU's.
template <class S>
struct BatchedKernels : test::EnqueuedKernels<S> {
    template <class Update, class Spans>
    static UpdateEntry<Update, Spans> update_entry(std::span<const rules::UpdateRange> ranges, const Update* updates,
                                                   const std::uint32_t* skip, const Spans& spans) {
        return {ranges, updates, skip, spans, 3};
    }
    template <class First, class Work>
    static void run_first(const S& stream, const First& first, std::uint64_t n, const Work& work) {
        stream.submit([=] {
            const std::span<const double> reads = first.reads();
            if (reads.size() > First::most_reads) { std::abort(); }
            const std::vector<double> read(reads.begin(), reads.end());
            first(read.data());
            for (std::uint64_t i = 0; i < n; ++i) { work(i); }
        });
    }
    template <class Update, class Spans>
    static void update_batch(const S& stream, const engine::LaunchBatch<UpdateEntry<Update, Spans>>& batch) {
        stream.submit([=] {
            // A GPU would take works that are not there, or leave some out.
            const bool right = !batch.entries.empty() && batch.entries.front().end == batch.begin + 3 &&
                               batch.entries.back().end == batch.end &&
                               batch.end - batch.begin == 3 * batch.entries.size();
            if (!right) { std::abort(); }
            for (const auto& entry : batch.entries) {
                test::EnqueuedKernels<shardkit::Stream>::update(shardkit::Stream{}, entry.ranges, entry.updates,
                                                                entry.skip, entry.spans);
            }
        });
    }
};

}  // namespace shardkit::test
