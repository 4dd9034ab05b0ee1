// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <doctest/doctest.h>

#include "../test_size.hpp"
#include "trainings.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace plan_test {

namespace {

/// The default model, for 3 steps on `ranks` of dp.
Options few_steps(std::size_t ranks, std::size_t batch) {
    Options options;
    options.mesh = {ranks, 1, 1};
    options.batch = batch;
    options.steps = 3;
    return options;
}

}  // namespace

TEST_SUITE("gpt.plan") {
    TEST_CASE("memory is the plan's for every policy, microbatches included") {
        Options options = few_steps(4, test_size::reduced() ? 12 : 24);
        options.microbatches = 3;
        if (test_size::reduced()) { options.model.sequence = 16; }
        for_each_policy(options, check_plan);
    }

    TEST_CASE("memory and traffic of experts are the plan's for every ep, with tp and cp, and under a schedule") {
        using enum program::PolicyKind;
        struct On {
            program::MeshExtents mesh;
            std::size_t ep, capacity;
            program::PolicyChoice policy;
            ScheduleChoice schedule{};
            std::size_t slices = 0;
        };
        const ScheduleChoice ahead{ScheduleChoice::Kind::prefetch, 1};
        for (const On& on :
             {On{{4, 1, 1}, 4, 0, {full_shard}}, On{{4, 1, 1}, 2, 24, {hybrid_shard, 2}},
              On{{4, 1, 1}, 2, 0, {shard_optimizer}, ahead}, On{{2, 2, 2}, 4, 16, {full_shard}, ahead},
              On{{2, 2, 1}, 1, 24, {no_shard}}, On{{1, 1, 1}, 1, 0, {no_shard}},
              On{{2, 1, 1}, 2, 0, {no_shard}, {}, 8}, On{{4, 1, 1}, 2, 0, {shard_optimizer}, ahead, 8}}) {
            Options options = few_steps(1, 8);
            options.mesh = on.mesh;
            options.model.sequence = 16;
            options.model.experts = 4;
            options.model.capacity = on.capacity;
            options.ep = on.ep;
            options.policy = on.policy;
            options.schedule = on.schedule;
            options.slices = on.slices;
            if (on.slices > 0) { options.microbatches = on.slices / on.mesh.dp; }
            options.dtype = on.capacity == 0 ? Dtype::fp32 : Dtype::bf16;
            check_plan(options);
        }
    }

    TEST_CASE("memory is the plan's where ranks, sequences and layers leave little of it to a rank") {
        Options options = few_steps(8, 8);
        if (!test_size::reduced()) { for_each_policy(options, check_plan); }
        options.model.sequence = 16;
        if (!test_size::reduced()) { for_each_policy(options, check_plan); }
        options.model.layers = 1;
        for (const Dtype dtype : {Dtype::fp32, Dtype::fp64, Dtype::bf16}) {
            if (test_size::reduced() && dtype != Dtype::bf16) { continue; }
            options.dtype = dtype;
            for_each_policy(options, check_plan);
        }
    }
}

}  // namespace plan_test
