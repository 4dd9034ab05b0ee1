// SPDX-License-Identifier: Apache-2.0
// An optimizer's rule of the user's own on the NCCL engine: the numbers of one thread, whenever each stream runs, by
// the kernels that KernelsFor lists of it.
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/rules.hpp>

#include "check_paced_training.hpp"
#include "given_kernels.hpp"
#include "paced_ranks.hpp"
#include "unit/optim/muon_training.hpp"

namespace own_rule_test {

namespace {

namespace sk = shardkit;
using muon_training::Mesh;

struct AdagradOptions {
    double learning_rate = 0.1;
    double weight_decay = 0;
};

template <class A>
struct AdagradUpdate {
    sk::rules::Factor<A> gradient_scale;
    A learning_rate, weight_decay;

    template <class V>
    constexpr void operator()(V& parameter, V& sum, V gradient) const {
        using sk::rules::square_root;
        const V g = gradient_scale * gradient + weight_decay * parameter;
        sum = sum + g * g;
        parameter = parameter - learning_rate * g / (square_root(sum) + A(1e-10));
    }
};

struct AdagradRule : sk::rules::CountsSteps {
    using Options = AdagradOptions;
    static constexpr std::string_view name = "Adagrad";
    static constexpr std::array<sk::rules::OptionRange<Options>, 2> ranges{
        {{"learning_rate", &Options::learning_rate, sk::rules::not_negative},
         {"weight_decay", &Options::weight_decay, sk::rules::not_negative}}};
    static constexpr std::array<std::string_view, 1> state_names{"sum"};
    static constexpr std::size_t state_count(const Options&) { return 1; }
    template <class A>
    using Update = AdagradUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress&, const Options& o, double scale) {
        return {sk::rules::Factor<A>(scale), A(o.learning_rate), A(o.weight_decay)};
    }
};
using Adagrad = sk::rules::RuleOptimizer<AdagradRule>;

}  // namespace

TEST_CASE("nccl: a rule of the user's own takes one thread's steps, on every policy and pace, by its kernels") {
    const auto make = [](auto& model) { return Adagrad{model, {}}; };
    std::vector<float> expected;
    sk::threads::run(Mesh(1, 1, 1), [&](auto& rank) {
        expected = muon_training::train_with(rank, muon_training::policies[3], make,
                                             [](const auto& stream, const auto& work) { stream.submit(work); });
    });
    // The first element begins with 0.5, and its gradients are -5, -4 and -3 before they are clipped: each step goes
    // up, the first by the learning rate and each other by less.
    CHECK(expected[0] > 0.6F);
    CHECK(expected[0] < 0.8F);
    using Precision = sk::DefaultPrecision<float>;
    constexpr auto kernels = sk::nccl::detail::training_kernels<Precision, AdagradRule>();
    decltype(kernels)::template In<sk::gpu::KernelLaunches>::calls();
    host_functions::Given::all().take();
    paced_ranks::check_training(expected, muon_training::policies, [&](auto& rank, const auto& policy) {
        return muon_training::train_with(rank, policy, make, paced_ranks::submit);
    });
    CHECK(host_functions::given_beside(kernels) == "");
}

}  // namespace own_rule_test
