// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/comm/stream.hpp>

#include "../cub/tensors_checks.hpp"
#include "enqueued_kernels.hpp"

using namespace shardkit;

namespace pack_test {

namespace {

struct InlineKernels : test::EnqueuedKernels<shardkit::Stream> {
    using Stream = shardkit::Stream;
};

}  // namespace

TEST_CASE("host: tensors are packed and unpacked, whatever their sizes and places") {
    test::HostMachine<InlineKernels> machine;
    test::check_pack(machine);
}

TEST_CASE("host: a flat buffer that is larger than the caches is packed past them, and what lies between is kept") {
    constexpr std::size_t count = host::detail::streaming_bytes / sizeof(float) / 2 + 100;
    std::vector<float> tensor(count - 3);
    for (std::size_t i = 0; i < tensor.size(); ++i) { tensor[i] = static_cast<float>(i % 1021); }
    const std::vector<float> kept = tensor;
    const engine::TensorPiece<float> piece{1, count - 2, tensor.data()};
    const std::span<const engine::TensorPiece<float>> table(&piece, 1);
    std::vector<float> flat(count, -1);
    InlineKernels::copy_tensors<engine::TensorCopy::pack>(shardkit::Stream{}, table, std::span(flat));
    CHECK(flat.front() == -1);
    CHECK(flat[count - 2] == -1);
    CHECK(flat.back() == -1);
    CHECK(std::vector<float>(flat.begin() + 1, flat.end() - 2) == kept);
    tensor.assign(tensor.size(), 0);
    InlineKernels::copy_tensors<engine::TensorCopy::unpack>(shardkit::Stream{}, table, std::span(flat));
    CHECK(tensor == kept);
}

}  // namespace pack_test
