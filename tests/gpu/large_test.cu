// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/check.hpp>

#include "../test_size.hpp"
#include "../unit/backend/cub/adamw_checks.hpp"
#include "gpu_machine.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;
using Kernels = shardkit::cub::Kernels;

namespace {

constexpr std::size_t gibi = std::size_t{1} << 30U;

/// Whether the GPU has that much free, with room to spare; says so when it has not.
bool has_room(std::size_t bytes) {
    std::size_t free = 0;
    std::size_t total = 0;
    sk::cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (test_size::reduced() || free < bytes + gibi / 2) {
        MESSAGE("left out: needs " << bytes / gibi << " GiB of GPU memory, " << free / gibi << " GiB are free");
        return false;
    }
    return true;
}

template <class T>
class Large {
  public:
    Large(std::size_t size, const sk::cuda::Stream& stream) : memory_(size, stream.ref()) {}
    std::span<T> span() const { return memory_.span(); }
    std::span<const T> view() const { return memory_.span(); }

    /// The elements around `position`, or before it at the end.
    std::vector<T> around(const sk::cuda::TimelineRef& stream, std::size_t position) const {
        const std::size_t first = std::min(position < 20 ? 0 : position - 20, memory_.size() - 40);
        std::vector<T> window(40);
        Kernels::copy_out(stream, view().subspan(first, 40), std::span(window));
        return window;
    }

  private:
    sk::cuda::DeviceBuffer<T> memory_;
};

}  // namespace

TEST_CASE("fill and convert beyond 2^32 elements") {
    const std::size_t size = 4 * gibi + 1003;
    if (!has_room(3 * size)) { return; }
    const sk::cuda::Stream stream;
    sk::cuda::Timeline timeline(stream.ref());
    const auto at = timeline.ref();
    {
        const Large<std::uint8_t> bytes(size, stream);
        Kernels::fill(at, bytes.span(), std::uint8_t{7});
        for (const std::size_t position : {std::size_t{0}, 2 * gibi, 4 * gibi, size}) {
            CHECK(bytes.around(at, position) == std::vector<std::uint8_t>(40, 7));
        }
    }
    if (!has_room(6 * size)) { return; }
    const Large<sk::bf16> from(size, stream);
    const Large<float> to(size, stream);
    Kernels::fill(at, from.span(), sk::bf16(1.5F));
    Kernels::convert(at, from.view(), to.span());
    Kernels::accumulate(at, from.view(), to.span());
    for (const std::size_t position : {std::size_t{0}, gibi, 2 * gibi, 4 * gibi, size}) {
        CHECK(to.around(at, position) == std::vector<float>(40, 3.0F));
    }
}

TEST_CASE("norm and AdamW beyond 4 GiB, with runs on both sides of it") {
    const std::size_t size = gibi + 1003;
    if (!has_room(4 * size * sizeof(float))) { return; }
    const sk::cuda::Stream stream;
    sk::cuda::Timeline timeline(stream.ref());
    const auto at = timeline.ref();
    test::GpuMachine gpu(std::size_t{1} << 20U);
    auto& machine = gpu.machine();
    const Large<float> master(size, stream);
    const Large<float> gradient(size, stream);
    const Large<float> exp_avg(size, stream);
    const Large<float> exp_avg_sq(size, stream);
    Kernels::fill(at, gradient.span(), 0.5F);
    Kernels::fill(at, master.span(), 2.0F);

    // Powers of two: no addition rounds, so every element must be there exactly once.
    const std::vector<sk::IndexRange> segments{{0, gibi - 5}, {gibi - 2, size}};
    const auto segments_there = test::array(machine, segments);
    const auto scalars = test::array(machine, std::vector<double>{2, 0, 0});
    Kernels::norm_partial(at, gradient.view(), segments_there.view(), scalars.data(), scalars.data() + 1);
    at.synchronize();
    CHECK(scalars.values() == std::vector<double>{2, static_cast<double>(size - 3), 0});

    const std::vector<sk::UpdateRun> runs{{0, gibi - 5, 0}, {gibi - 2, size, 1}};
    const auto updates = test::adamw_updates<float>();
    const auto runs_there = test::array(machine, runs);
    const auto updates_there = test::array(machine, updates);
    Kernels::adamw(
        at, runs_there.view(), updates_there.view().data(), static_cast<const std::uint32_t*>(nullptr),
        sk::AdamWSpans<float, float, float>{master.span(), {}, gradient.view(), exp_avg.span(), exp_avg_sq.span()});
    const auto stepped = [&](std::size_t update) {
        float p = 2;
        float m = 0;
        float v = 0;
        updates[update](p, m, v, 0.5F);
        return p;
    };
    for (const std::size_t position : {std::size_t{0}, gibi / 2}) {
        CHECK(master.around(at, position) == std::vector<float>(40, stepped(0)));
    }
    CHECK(master.around(at, size) == std::vector<float>(40, stepped(1)));
    std::vector<float> border = master.around(at, gibi);
    std::vector<float> expected(40, stepped(0));
    for (std::size_t i = 15; i < 18; ++i) { expected[i] = 2; }
    for (std::size_t i = 18; i < 40; ++i) { expected[i] = stepped(1); }
    CHECK(border == expected);
}
