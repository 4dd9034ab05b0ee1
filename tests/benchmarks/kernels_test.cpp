// SPDX-License-Identifier: Apache-2.0
// The data check of the kernels: it passes what the library computes, and counts what is planted.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <doctest/doctest.h>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "check_kernel.hpp"

namespace kernels_test {

namespace {

using namespace benchmarks::kernels;
using Engine = shardkit::self::Engine;

/// Moves the first element of what an update writes, after it.
struct SpoiledKernels : Engine::Kernels {
    template <class Update, class Spans>
    static void update(const Engine::Stream& stream, std::span<const shardkit::rules::UpdateRange> ranges,
                       const Update* updates, const std::uint32_t* skip, const Spans& spans) {
        Engine::Kernels::update(stream, ranges, updates, skip, spans);
        auto& first = spans.master[0];
        first = static_cast<std::remove_reference_t<decltype(first)>>(static_cast<float>(first) + 1);
        if (!spans.gathered.empty()) {
            spans.gathered[0] = static_cast<typename Spans::Gather>(static_cast<float>(spans.master[0]));
        }
    }
};
struct Spoiled : Engine {
    using Kernels = SpoiledKernels;
};

}  // namespace

TEST_CASE("every kernel: right data passes, one spoiled element is one wrong value, no call is wrong") {
    shardkit::self::run(shardkit::DeviceMesh<1>{}, [](auto& rank) {
        shardkit::Context<Engine>& context = rank;
        check_kernels(context);
    });
}

TEST_CASE("a step: right data passes, one spoiled element of each group is as many wrong values, no call is wrong") {
    const auto wrong_of = [](auto engine, DataType type, std::size_t calls) {
        using E = decltype(engine);
        shardkit::self::World world;
        shardkit::Rank<E, shardkit::DeviceMesh<1>> rank{{}, shardkit::self::Communicator(world), {}, {}};
        shardkit::Context<E>& context = rank;
        const auto workload = make_workload(context, KernelKind::step, type, planted_elements, 7);
        CHECK(workload->groups() == 7);
        return wrong_after(*workload, calls);
    };
    for (const DataType type : {DataType::fp32, DataType::bf16}) {
        CHECK(wrong_of(Engine{}, type, 1) == 0);
        CHECK(wrong_of(Engine{}, type, 0) == planted_elements);
        CHECK(wrong_of(Spoiled{}, type, 1) == 7);
    }
}

TEST_CASE("a span is cut into as many runs as asked for, side by side") {
    const auto runs = cut<shardkit::IndexRange>(1000, 300);
    REQUIRE(runs.size() == 300);
    CHECK(runs.front().begin == 0);
    CHECK(runs.back().end == 1000);
    for (std::size_t r = 1; r < runs.size(); ++r) { CHECK(runs[r].begin == runs[r - 1].end); }
    CHECK(cut<shardkit::IndexRange>(5, 10).size() == 5);
}

TEST_CASE("tensors that are packed have mixed sizes, begin at aligned places and fill the flat buffer") {
    const auto bounds = tensor_bounds(1'000'000, 300, sizeof(float));
    REQUIRE(bounds.size() == 301);
    CHECK(bounds.front() == 0);
    CHECK(bounds.back() == 1'000'000);
    for (std::size_t t = 0; t < 300; ++t) {
        CHECK(bounds[t] * sizeof(float) % 128 == 0);
        CHECK(bounds[t] < bounds[t + 1]);
    }
    CHECK(bounds[4] - bounds[3] > 10 * (bounds[2] - bounds[1]));
    CHECK(tensor_bounds(5, 3, 2) == std::vector<std::size_t>{0, 0, 0, 5});
}

TEST_CASE("bytes per element are those of the buffers that a kernel touches") {
    // fp32 parameter, two moments: read and written; a gradient of 4 bytes, or of 2 and a copy of 2.
    CHECK(bytes_per_element(KernelKind::adamw, DataType::fp32) == 28);
    CHECK(bytes_per_element(KernelKind::adamw, DataType::bf16) == 28);
    CHECK(bytes_per_element(KernelKind::sgd, DataType::fp32) == 20);
    CHECK(bytes_per_element(KernelKind::sgd, DataType::bf16) == 20);
    CHECK(bytes_per_element(KernelKind::norm, DataType::fp32) == 4);
    CHECK(bytes_per_element(KernelKind::norm, DataType::bf16) == 2);
    CHECK(bytes_per_element(KernelKind::cast, DataType::fp32) == 6);
    CHECK(bytes_per_element(KernelKind::cast, DataType::bf16) == 6);
    CHECK(bytes_per_element(KernelKind::accumulate, DataType::fp32) == 12);
    CHECK(bytes_per_element(KernelKind::accumulate, DataType::bf16) == 10);
    CHECK(bytes_per_element(KernelKind::pack, DataType::fp32) == 8);
    CHECK(bytes_per_element(KernelKind::unpack, DataType::bf16) == 4);
}

TEST_CASE("values are exact in bf16 and never 0") {
    for (std::size_t i = 0; i < 1000; ++i) {
        const float v = value(i % 4, i);
        CHECK(static_cast<float>(static_cast<shardkit::bf16>(v)) == v);
        CHECK(v != 0);
        CHECK(std::abs(v) <= 1);
    }
}

}  // namespace kernels_test
