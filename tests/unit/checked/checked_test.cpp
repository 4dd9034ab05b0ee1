// SPDX-License-Identifier: Apache-2.0
#undef SHARDKIT_CHECKED
#define SHARDKIT_CHECKED 1
#include <algorithm>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "unit/checked/train_case.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace checked_test {

using both_builds::Case;
using toy::Flat;
using toy::Weight;

static_assert(sk::checked);

static const char* const ended = "view used after the end of its window, which was opened here";

TEST_CASE("training is bitwise the same in a checked and an unchecked build") {
    for (const Case which : {Case::no_shard, Case::full_shard, Case::hybrid_shard, Case::full_shard_bf16}) {
        CAPTURE(static_cast<int>(which));
        const auto checked = both_builds::train_case(which);
        const auto unchecked = both_builds::trained_unchecked(which);
        REQUIRE(checked.size() == 4 + 393 + 3 * 42 + 4);
        REQUIRE(unchecked.size() == checked.size());
        CHECK(std::memcmp(checked.data(), unchecked.data(), checked.size() * sizeof(double)) == 0);
        CHECK(std::none_of(checked.begin(), checked.end(), [](double x) { return std::isnan(x); }));
    }
}

TEST_CASE("a checked build trains as one rank does, in fp64 to 1e-12") {
    for (const toy::Training& training : toy::trainings(3)) {
        toy::check_against_oracle<sk::Precision<double>>({3}, sk::FullShard{}, training, 1e-12);
        toy::check_against_oracle<sk::Precision<double>>({2, 1, 2}, sk::NoShard{}, training, 1e-12);
    }
}

TEST_CASE("a released gather buffer reads as NaN, once the last window on it has ended") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard, sk::Precision<sk::bf16>>(rank);
        auto outer = layer.unshard();
        auto inner = layer.unshard();
        const sk::bf16* const kept = inner[Weight{}].data();
        layer.reshard(std::move(outer));
        CHECK(static_cast<float>(kept[34]) == 34);
        layer.reshard(std::move(inner));
        for (std::size_t i = 0; i < layer.layout().buffer_numel(); ++i) {
            CHECK(std::isnan(static_cast<float>(kept[i])));
        }
        const auto again = layer.unshard();
        CHECK(again[Weight{}].data() == kept);
        CHECK(static_cast<float>(again[Weight{}][34]) == 34);
    });
}

TEST_CASE("a copy that stays is not poisoned, but views end with their window all the same") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::NoShard>(rank);
        const sk::SourceLocation opened{__FILE__, __LINE__ + 1};
        auto window = layer.unshard();
        const auto view = window[Weight{}];
        const double* const kept = view.data();
        layer.reshard(std::move(window));
        CHECK(kept[34] == 34);
        CHECK_USAGE_ERROR_FROM(opened, view[0], ended);
        CHECK_USAGE_ERROR_FROM(opened, view.data(), ended);
        CHECK_USAGE_ERROR_FROM(opened, view.begin(), ended);
        CHECK(view.size() == 35);
        // A new window does not bring the old view back.
        const auto next = layer.unshard();
        CHECK_USAGE_ERROR_FROM(opened, view[0], ended);
        CHECK(next[Weight{}][34] == 34);
    });
}

TEST_CASE("a view of gradients ends when its handle is added or dropped") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        sk::Accumulation accumulation{model, 2};
        const sk::SourceLocation taken{__FILE__, __LINE__ + 1};
        auto handle = accumulation.gradients(layer);
        const auto view = handle[Weight{}];
        view[0] = 1;
        accumulation.add(std::move(handle));
        CHECK_USAGE_ERROR_FROM(taken, view[0], ended);
        const sk::SourceLocation taken_again{__FILE__, __LINE__ + 1};
        auto second = accumulation.gradients(layer);
        CHECK_USAGE_ERROR_FROM(taken, view[0], ended);
        const auto lost = second[Weight{}];
        { const auto dropped = std::move(second); }
        CHECK_USAGE_ERROR_FROM(taken_again, lost[0], ended);
    });
}

}  // namespace checked_test
