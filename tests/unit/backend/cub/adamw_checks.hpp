// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/any_rule.hpp>

#include "update_checks.hpp"

namespace shardkit::test {

template <class A>
std::vector<detail::KnownRuleUpdate<rules::AdamWUpdate<A>>> adamw_updates() {
    return {{rules::adamw_update<A>({.learning_rate = 1e-2, .weight_decay = 0.1}, 0.9, 0.999, 0.5)},
            {rules::adamw_update<A>({.learning_rate = 3e-3, .weight_decay = 0}, 0.81, 0.998, 1)},
            {rules::adamw_update<A>({.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.9}, 0.25, 0.81, -2)}};
}

struct AdamWCase {
    static constexpr std::size_t state_count = 2;
    template <class A>
    std::vector<detail::KnownRuleUpdate<rules::AdamWUpdate<A>>> updates() const {
        return adamw_updates<A>();
    }
};

template <class M>
void check_adamw(M& machine) {
    check_update(machine, AdamWCase{});
}

}  // namespace shardkit::test
