// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/lion.hpp>

#include "update_checks.hpp"

namespace shardkit::test {

struct LionCase {
    static constexpr std::size_t state_count = 1;
    template <class A>
    std::vector<detail::KnownRuleUpdate<rules::LionUpdate<A>>> updates() const {
        return {{rules::lion_update<A>({.learning_rate = 1e-2, .weight_decay = 0.1}, 0.5)},
                {rules::lion_update<A>({}, 1)},
                {rules::lion_update<A>({.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.9}, -2)}};
    }
};

template <class M>
void check_lion(M& machine) {
    check_update(machine, LionCase{});
}

}  // namespace shardkit::test
