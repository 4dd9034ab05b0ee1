// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <shardkit/backend/nccl/compiled_engine.hpp>
#include <shardkit/compiled/define_optimizers.hpp>

// Makes optimizers over NCCL.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <StateFormat format>
RuleOptimizer* make_nccl_optimizer(Rule rule, const Groups& groups, const void* options,
                                   std::vector<ParamGroup>&& param_groups, SourceLocation where) {
    const auto make = [&]<Rule wanted>() {
        return make_optimizer_on<NcclEngine, wanted, format>(groups, options, std::move(param_groups), where);
    };
    switch (rule) {
        case Rule::adamw:
            return make.template operator()<Rule::adamw>();
        case Rule::amsgrad:
            return make.template operator()<Rule::amsgrad>();
        case Rule::sgd:
            return make.template operator()<Rule::sgd>();
        case Rule::lion:
            break;
    }
    return make.template operator()<Rule::lion>();
}

}  // namespace SHARDKIT_CHECKED_BUILD
