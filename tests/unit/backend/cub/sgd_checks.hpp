// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/sgd.hpp>

#include "update_checks.hpp"

namespace shardkit::test {

template <class A>
std::vector<detail::KnownRuleUpdate<rules::SgdUpdate<A>>> sgd_updates(Momentum rule) {
    const double momentum = rule == Momentum::none ? 0 : 0.9;
    return {
        {rules::sgd_update<A>({.learning_rate = 0.1, .rule = rule, .momentum = momentum, .weight_decay = 0.01}, 0.5)},
        {rules::sgd_update<A>({.learning_rate = 0.3, .rule = rule, .momentum = momentum}, 1)},
        {rules::sgd_update<A>({.learning_rate = 1e-3, .rule = rule, .momentum = momentum / 2}, -2)}};
}

template <Momentum Rule>
struct SgdCase {
    static constexpr std::size_t state_count = Rule == Momentum::none ? 0 : 1;
    template <class A>
    std::vector<detail::KnownRuleUpdate<rules::SgdUpdate<A>>> updates() const {
        return sgd_updates<A>(Rule);
    }
};

template <class M>
void check_sgd(M& machine) {
    SUBCASE("none") { check_update(machine, SgdCase<Momentum::none>{}); }
    SUBCASE("classical") { check_update(machine, SgdCase<Momentum::classical>{}); }
    SUBCASE("nesterov") { check_update(machine, SgdCase<Momentum::nesterov>{}); }
}

}  // namespace shardkit::test
