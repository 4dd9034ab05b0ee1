// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/device_buffer.hpp>
#include <shardkit/backend/cuda/pinned_reads.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/host_work.hpp"

namespace pinned_reads_test {

using shardkit::gpu::DeviceBuffer;
using shardkit::gpu::DeviceGuard;
using shardkit::gpu::PinnedReads;
using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;

TEST_CASE("PinnedReads: copies come after what the stream had been given, on a thread of another device as well") {
    for (const standin::Pace pace : {standin::Pace::lazy, standin::Pace::eager}) {
        const CleanMachine machine(pace);
        const DeviceGuard selected(1);
        const Stream stream;
        Timeline timeline(stream.ref(), {.events = 4, .scratch_bytes = 1024});
        const DeviceBuffer<std::uint8_t> memory(3000, stream.ref());
        HostWork work;
        work.enqueue(timeline.ref(), [&] { std::fill_n(memory.data(), memory.size(), std::uint8_t{7}); });
        PinnedReads reads(timeline.ref());
        REQUIRE(reads.capacity() >= 2000);
        const auto bytes = std::as_bytes(std::span<const std::uint8_t>(memory.span()));
        std::size_t sizes[2] = {};
        std::ptrdiff_t sevens[2] = {};
        std::thread([&] {
            reads.begin(0, bytes.first(1000));
            reads.begin(1, bytes.last(2000));
            for (const std::size_t slot : {0U, 1U}) {
                const auto read = reads.finish(slot);
                sizes[slot] = read.size();
                sevens[slot] = std::count(read.begin(), read.end(), std::byte{7});
            }
        }).join();
        CHECK(sizes[0] == 1000);
        CHECK(sevens[0] == 1000);
        CHECK(sizes[1] == 2000);
        CHECK(sevens[1] == 2000);
        reads.begin(1, bytes.first(5));  // its end waits for it
        stream.ref().synchronize();
    }
}

}  // namespace pinned_reads_test
