// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/pinned_copies.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/backend/cuda/host_work.hpp"
#include "unit/backend/cuda/typed_bytes.hpp"

namespace pinned_copies_test {

using shardkit::gpu::Stream;
using shardkit::gpu::Timeline;
using shardkit::gpu::detail::DeviceGuard;
using shardkit::gpu::detail::PinnedCopies;

TEST_CASE("PinnedCopies: copies come after what the stream had been given, on a thread of another device as well") {
    for (const standin::Pace pace : {standin::Pace::lazy, standin::Pace::eager}) {
        const CleanMachine machine(pace);
        const DeviceGuard selected(1);
        const Stream stream;
        Timeline timeline(stream.ref(), {.events = 4, .scratch_bytes = 1024});
        const TypedBytes<std::uint8_t> memory = on_device<std::uint8_t>(3000, stream.ref());
        HostWork work;
        work.enqueue(timeline.ref(), [&] { std::fill_n(memory.data(), memory.size(), std::uint8_t{7}); });
        PinnedCopies copies(timeline.ref());
        REQUIRE(copies.capacity() >= 2000);
        const auto bytes = std::as_bytes(std::span<const std::uint8_t>(memory.span()));
        std::size_t sizes[2] = {};
        std::ptrdiff_t sevens[2] = {};
        std::thread([&] {
            copies.begin_read(0, bytes.first(1000));
            copies.begin_read(1, bytes.last(2000));
            for (const std::size_t slot : {0U, 1U}) {
                const auto read = copies.finish(slot).first(slot == 0 ? 1000 : 2000);
                sizes[slot] = read.size();
                sevens[slot] = std::count(read.begin(), read.end(), std::byte{7});
            }
        }).join();
        CHECK(sizes[0] == 1000);
        CHECK(sevens[0] == 1000);
        CHECK(sizes[1] == 2000);
        CHECK(sevens[1] == 2000);
        copies.begin_read(1, bytes.first(5));  // its end waits for it
        stream.ref().synchronize();
    }
}

TEST_CASE(
    "PinnedCopies: what is written comes after what the stream had been given, and a slot is free once it is there") {
    for (const standin::Pace pace : {standin::Pace::lazy, standin::Pace::eager}) {
        const CleanMachine machine(pace);
        const DeviceGuard selected(1);
        const Stream stream;
        Timeline timeline(stream.ref(), {.events = 4, .scratch_bytes = 1024});
        const TypedBytes<std::uint8_t> memory = on_device<std::uint8_t>(4000, stream.ref());
        HostWork work;
        work.enqueue(timeline.ref(), [&] { std::fill_n(memory.data(), memory.size(), std::uint8_t{7}); });
        PinnedCopies copies(timeline.ref());
        const auto bytes = std::as_writable_bytes(memory.span());
        std::thread([&] {
            for (std::size_t k = 0; k < 4; ++k) {
                const std::size_t slot = k % PinnedCopies::slots;
                const auto room = copies.finish(slot).first(900);
                std::fill(room.begin(), room.end(), static_cast<std::byte>(k + 1));
                copies.begin_write(slot, bytes.subspan(k * 1000, room.size()));
            }
            for (std::size_t slot = 0; slot < PinnedCopies::slots; ++slot) { static_cast<void>(copies.finish(slot)); }
        }).join();
        for (std::size_t k = 0; k < 4; ++k) {
            const auto part = std::span<const std::uint8_t>(memory.span()).subspan(k * 1000, 1000);
            CHECK(std::count(part.begin(), part.end(), static_cast<std::uint8_t>(k + 1)) == 900);
            CHECK(std::count(part.begin() + 900, part.end(), std::uint8_t{7}) == 100);
        }
        stream.ref().synchronize();
    }
}

}  // namespace pinned_copies_test
