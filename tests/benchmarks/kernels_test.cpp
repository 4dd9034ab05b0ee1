// SPDX-License-Identifier: Apache-2.0
// The data check of the kernels: it passes what the library computes, and counts what is planted.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "check_kernel.hpp"

namespace kernels_test {

namespace {

using namespace benchmarks::kernels;

/// One rank's verbs, which know the memory of its groups.
class Remembering final : public shardkit::host::DecoratedVerbs {
  public:
    using Memory = std::vector<std::weak_ptr<std::uint8_t>>;

    Remembering(std::shared_ptr<const Verbs> verbs, Memory& memory)
        : DecoratedVerbs(std::move(verbs)), memory_(memory) {}

    std::shared_ptr<void> place(std::size_t bytes) const override {
        const auto own = std::make_shared<shardkit::HostBuffer<std::uint8_t>>(bytes);
        const std::shared_ptr<std::uint8_t> data(own, own->data());
        memory_.emplace_back(data);
        return data;
    }

  private:
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const Remembering>(std::move(verbs), memory_);
    }

    Memory& memory_;
};

/// Moves the first element of each piece of memory, parameters among them.
template <class T>
void spoil(const Remembering::Memory& memory) {
    for (const auto& each : memory) {
        if (const auto data = each.lock()) {
            auto& first = *reinterpret_cast<T*>(data.get());
            first = static_cast<T>(static_cast<float>(first) + 1);
        }
    }
}

}  // namespace

TEST_CASE("every kernel: right data passes, one spoiled element is one wrong value, no call is wrong") {
    shardkit::self::run(shardkit::DeviceMesh<1>{}, [](shardkit::Rank& rank) { check_kernels(rank); });
}

TEST_CASE("a step: right data passes, one spoiled element of each group is as many wrong values, no call is wrong") {
    const auto wrong_of = [](DataType type, std::size_t calls, bool spoils = false) {
        shardkit::self::World world;
        Remembering::Memory memory;
        const shardkit::Communicator comm(std::make_shared<const Remembering>(world.communicator().verbs(), memory));
        shardkit::MeshRank<shardkit::DeviceMesh<1>> rank{{}, comm};
        const auto workload = make_workload(rank, KernelKind::step, type, planted_elements, 7);
        CHECK(workload->groups() == 7);
        workload->prepare();
        workload->call(calls);
        if (spoils) { type == DataType::fp32 ? spoil<float>(memory) : spoil<shardkit::bf16>(memory); }
        return workload->count_wrong();
    };
    for (const DataType type : {DataType::fp32, DataType::bf16}) {
        CHECK(wrong_of(type, 1) == 0);
        CHECK(wrong_of(type, 0) == planted_elements);
        CHECK(wrong_of(type, 1, true) == 7);
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
