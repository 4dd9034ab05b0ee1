// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <typeindex>

#include <shardkit/backend/nccl/kernels_of.hpp>

#include "host_functions.hpp"

namespace host_functions {

/// Which of the kernels that were given are not of a list, by the names that compilers have for them.
template <class... Kernel>
std::string given_beside(shardkit::nccl::detail::KernelList<Kernel...> /*list*/) {
    const std::set<std::type_index> listed{std::type_index(typeid(Kernel))...};
    std::string others;
    for (const std::type_index kernel : Given::all().take()) {
        if (!listed.contains(kernel)) { others += std::string(kernel.name()) + "\n"; }
    }
    return others;
}

}  // namespace host_functions
