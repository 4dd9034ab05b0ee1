// SPDX-License-Identifier: Apache-2.0
// expected-error: RuleOptimizer<Rule>: a rule has at most 192 bytes of options, 128 of an update, 4 states and 4 products
#include "model.hpp"

#include <shardkit/optim/rule_optimizer.hpp>

struct Rule : sk::rules::SgdRule {
#ifdef REJECT
    static constexpr std::array<std::string_view, 5> state_names{"momentum_buffer", "1", "2", "3", "4"};
#endif
};

double rate(sk::rules::RuleOptimizer<Rule>& optimizer) { return optimizer.learning_rate(); }
