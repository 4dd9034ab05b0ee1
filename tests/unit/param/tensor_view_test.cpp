// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/param/tensor_view.hpp>

#include "unit/thrown_message.hpp"

namespace tensor_view_test {

namespace {

using namespace shardkit;

static_assert(std::ranges::contiguous_range<TensorView<float>> && std::ranges::sized_range<TensorView<float>>);
static_assert(std::ranges::borrowed_range<TensorView<float>>);
static_assert(std::is_convertible_v<TensorView<float>, std::span<float>>);
static_assert(std::is_convertible_v<TensorView<float>, std::span<const float>>);
static_assert(std::is_convertible_v<TensorView<float>, float*>);
static_assert(!std::is_convertible_v<TensorView<const float>, std::span<float>>, "read-only stays read-only");
static_assert(!std::is_convertible_v<TensorView<const float>, float*>);

float sum_of_span(std::span<const float> values) { return std::accumulate(values.begin(), values.end(), 0.0F); }
float sum_of_plain(const float* values, std::size_t n) { return std::accumulate(values, values + n, 0.0F); }

}  // namespace

TEST_CASE("TensorView: memory, shape and conversions to plain memory") {
    std::vector<float> memory(12);
    std::iota(memory.begin(), memory.end(), 0.0F);
    const TensorShape shape{2, {3, 4}};
    const std::uint64_t generation = 0;
    const TensorView<float> view(memory.data(), shape, generation);
    CHECK(view.data() == memory.data());
    CHECK(view.size() == 12);
    CHECK(view.shape() == shape);
    CHECK(view.extent(0) == 3);
    CHECK(view.extent(1) == 4);
    CHECK(view[5] == 5.0F);
    CHECK(view[std::size_t{11}] == 11.0F);
    CHECK(view.end() - view.begin() == 12);
    view[5] = 50.0F;  // a view of a gradient is written through
    CHECK(memory[5] == 50.0F);
    CHECK(sum_of_span(view) == 111.0F);
    CHECK(sum_of_plain(view, view.size()) == 111.0F);
    float sum = 0;
    for (const float value : view) { sum += value; }
    CHECK(sum == 111.0F);
}

TEST_CASE("TensorView: elements by their indices, and a pointer for C functions") {
    std::vector<float> memory(24);
    std::iota(memory.begin(), memory.end(), 0.0F);
    const TensorShape shape{3, {2, 3, 4}};
    const std::uint64_t generation = 0;
    const SourceLocation opened{"train.cpp", 12};
    const TensorView<float> view(memory.data(), shape, generation, opened);
    CHECK(view(0, 0, 0) == 0.0F);
    CHECK(view(1, 2, std::size_t{3}) == 23.0F);
    CHECK(view(1, 0, 2) == 14.0F);
    view(0, 1, 0) = 50.0F;
    CHECK(memory[4] == 50.0F);
    const TensorView<const float> read_only(memory.data(), shape, generation, opened);
    static_assert(std::is_same_v<decltype(read_only.data()), const float*>);
    static_assert(std::is_same_v<decltype(read_only.const_cast_data()), float*>);
    CHECK(read_only.const_cast_data() == memory.data());
    if constexpr (checked) {
        CHECK_USAGE_ERROR_FROM(opened, view(1, 3, 0),
                               "view(1, 3, 0) of a tensor of shape [2, 3, 4]; its window or handle was opened here");
        CHECK_USAGE_ERROR_FROM(opened, view(1, 2),
                               "view(1, 2) of a tensor of shape [2, 3, 4]; its window or handle was opened here");
    }
}

TEST_CASE("TensorView: checked builds refuse a view of an earlier generation") {
    std::vector<float> memory(3);
    const TensorShape shape{1, {3}};
    std::uint64_t generation = 7;
    const SourceLocation opened{__FILE__, __LINE__ + 1};
    const TensorView<float> before(memory.data(), shape, generation);
    ++generation;
    const TensorView<float> after(memory.data(), shape, generation);
    CHECK_NOTHROW(after.data());
    if constexpr (checked) {
        const char* const message = "view used after the end of its window, which was opened here";
        CHECK_USAGE_ERROR_FROM(opened, before.data(), message);
        CHECK_USAGE_ERROR_FROM(opened, before[0], message);
        CHECK_USAGE_ERROR_FROM(opened, before.begin(), message);
        CHECK_USAGE_ERROR_FROM(opened, static_cast<float*>(before), message);
    } else {
        static_assert(checked || sizeof(TensorView<float>) == 2 * sizeof(void*), "no cost");
        CHECK_NOTHROW(before.data());
    }
}

}  // namespace tensor_view_test
