// SPDX-License-Identifier: Apache-2.0
#undef SHARDKIT_CHECKED
#define SHARDKIT_CHECKED 0
#include <doctest/doctest.h>

#include "unit/checked/train_case.hpp"
#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

std::vector<double> both_builds::trained_unchecked(Case which) { return train_case(which); }

namespace unchecked_test {

static_assert(!sk::checked);

TEST_CASE("an unchecked build leaves a released gather buffer as it is, and a view is a pointer and a shape") {
    sk::threads::run(toy::Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        auto window = layer.unshard();
        const auto view = window[toy::Weight{}];
        static_assert(sizeof(view) == 2 * sizeof(void*));
        const double* const kept = view.data();
        layer.reshard(std::move(window));
        CHECK(kept[34] == 34);
    });
}

}  // namespace unchecked_test
