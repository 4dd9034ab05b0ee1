// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include "../test_size.hpp"
#include "trainings.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace policies_test {

namespace {

/// f(options) for every policy on `world` data-parallel ranks.
template <class F>
void for_each_policy_on(Options options, std::size_t world, F f) {
    options.mesh = {world, 1, 1};
    for_each_policy(options, f);
}

std::vector<std::size_t> worlds() {
    if (test_size::reduced()) { return {3, 4}; }
    return {1, 2, 3, 4, 5, 8};
}

/// `counts`: every number of microbatches, or one each, in turn: what differs between them shows with SGD.
enum class Counts { every, in_turn };

void check_all_worlds(OptimizerKind optimizer, Counts counts) {
    Options options = base();
    options.optimizer = optimizer;
    options.mesh = {1, 1, 1};
    const Trained one = trained(options);
    CHECK(one.losses.front() - one.losses.back() > 0.001);
    for (const std::size_t world : worlds()) {
        std::size_t turn = world;
        for_each_policy_on(options, world, [&](Options each) {
            ++turn;
            for (const std::size_t microbatches : {1U, 3U}) {
                if (counts == Counts::in_turn && microbatches != 1 + 2 * (turn % 2)) { continue; }
                each.microbatches = microbatches;
                check_close(each, one, trained(each), {1e-11, 1e-9, 1e-9});
            }
        });
    }
}

}  // namespace

TEST_SUITE("gpt.policies") {
    TEST_CASE("fp64, SGD: every policy, world and number of microbatches trains as one rank does") {
        check_all_worlds(OptimizerKind::sgd, Counts::every);
    }

    TEST_CASE("fp64, AdamW: every policy and world trains as one rank does, with one microbatch and with three") {
        check_all_worlds(OptimizerKind::adamw, Counts::in_turn);
    }

    TEST_CASE("fp32 with clipping at 1: every policy, world and number of microbatches stays close to one rank") {
        for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adamw}) {
            Options options = base();
            options.dtype = Dtype::fp32;
            options.optimizer = optimizer;
            options.clip = 1;
            const Trained one = trained(options);
            for (const std::size_t world : worlds()) {
                // In turn, so that each policy of a world sees both numbers: one with SGD, the other with AdamW.
                std::size_t turn = optimizer == OptimizerKind::sgd ? 0 : 1;
                for_each_policy_on(options, world, [&](Options each) {
                    each.microbatches = turn++ % 2 == 0 ? 1 : 3;
                    check_close(each, one, trained(each), {1e-5, 1e-4, 1e-3});
                });
            }
        }
    }

    TEST_CASE("bf16 stays within 1e-3 of one rank in bf16, and within 1e-2 of fp32") {
        Options options = base();
        const auto close = [&](const Trained& a, const Trained& b, double bound) {
            for (std::size_t s = 0; s < options.steps; ++s) { CHECK(std::abs(a.losses[s] - b.losses[s]) <= bound); }
        };
        options.dtype = Dtype::fp32;
        const Trained fp32 = trained(options);
        options.dtype = Dtype::bf16;
        const Trained one = trained(options);
        close(fp32, one, 1e-2);
        for (const std::size_t world : {2U, 4U}) {
            for_each_policy_on(options, world, [&](const Options& each) { close(one, trained(each), 1e-3); });
        }
    }

    TEST_CASE("fp32 and bf16, one microbatch: the four policies give the same bits, clipping included") {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
            for (const std::size_t world : {2U, 3U, 4U}) {
                Options options = base();
                options.dtype = dtype;
                options.mesh = {world, 1, 1};
                options.clip = 0.05;
                options.steps = 12;
                const Trained first = trained(options);
                for (const program::PolicyKind policy :
                     {program::PolicyKind::shard_optimizer, program::PolicyKind::shard_grad_op,
                      program::PolicyKind::full_shard}) {
                    options.policy = {policy};
                    const Trained other = trained(options);
                    CAPTURE(options.policy.text());
                    CAPTURE(world);
                    CHECK(other.losses == first.losses);
                    CHECK(other.grad_norms == first.grad_norms);
                    for (std::size_t k = 0; k < first.parameters.size(); ++k) {
                        CHECK(other.parameters[k].values == first.parameters[k].values);
                    }
                }
            }
        }
    }

    TEST_CASE(
        "Lion and Muon, one microbatch: the loss falls, and the four policies give the same bits, clipping "
        "included") {
        for (const OptimizerKind optimizer : {OptimizerKind::lion, OptimizerKind::muon})
            for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
                Options options = base();
                options.dtype = dtype;
                options.optimizer = optimizer;
                options.learning_rate = 3e-4;
                options.steps = 20;
                options.mesh = {3, 1, 1};
                options.clip = 0.05;
                const Trained first = trained(options);
                CHECK(first.losses.front() - first.losses.back() > 0.01);
                for (const program::PolicyKind policy :
                     {program::PolicyKind::shard_optimizer, program::PolicyKind::shard_grad_op,
                      program::PolicyKind::full_shard}) {
                    options.policy = {policy};
                    const Trained other = trained(options);
                    CAPTURE(options.policy.text());
                    CHECK(other.losses == first.losses);
                    CHECK(other.grad_norms == first.grad_norms);
                    for (std::size_t k = 0; k < first.parameters.size(); ++k) {
                        CHECK(other.parameters[k].values == first.parameters[k].values);
                    }
                }
            }
    }

    TEST_CASE("an untied head, and a model whose groups are smaller than the world, train as one rank does") {
        Options options = base();
        options.model.head = HeadKind::untied;
        options.model.width = 4;
        options.steps = 10;
        options.batch = 32;
        const Trained one = trained(options);
        for (const std::size_t world : {2U, 16U}) {
            for_each_policy_on(options, world, [&](const Options& each) {
                check_close(each, one, trained(each), {1e-11, 1e-9, 1e-9});
            });
        }
    }

    TEST_CASE("measured collectives and peak bytes are the planned ones, and steady steps take no memory") {
        for (const HeadKind head : {HeadKind::tied, HeadKind::untied}) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
                for (const std::size_t microbatches : {1U, 2U}) {
                    const bool tied = head == HeadKind::tied;
                    if (test_size::reduced() && (tied != (dtype == Dtype::fp32) || tied != (microbatches == 2))) {
                        continue;
                    }
                    Options options = base();
                    options.dtype = dtype;
                    options.steps = 3;
                    options.batch = 8;
                    options.model = {16, 3, 64, 4, head};
                    options.microbatches = microbatches;
                    for_each_policy_on(options, 4, [&](const Options& each) { check_plan(each); });
                }
            }
        }
    }
}

}  // namespace policies_test
