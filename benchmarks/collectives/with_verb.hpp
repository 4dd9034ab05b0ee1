// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include "options.hpp"
#include "verbs/all_gather.hpp"
#include "verbs/all_reduce.hpp"
#include "verbs/all_to_all.hpp"
#include "verbs/barrier.hpp"
#include "verbs/broadcast.hpp"
#include "verbs/reduce_scatter.hpp"
#include "verbs/send_receive.hpp"

namespace benchmarks {

/// f(the verb's struct), returning what f returns.
template <class F>
auto with_verb(VerbKind verb, F f) {
    switch (verb) {
        case VerbKind::all_gather:
            return f(AllGather{});
        case VerbKind::reduce_scatter:
            return f(ReduceScatter{});
        case VerbKind::all_reduce:
            return f(AllReduce{});
        case VerbKind::broadcast:
            return f(Broadcast{});
        case VerbKind::all_to_all:
            return f(AllToAll{});
        case VerbKind::send_receive:
            return f(SendReceive{});
        case VerbKind::barrier:
            return f(Barrier{});
    }
    throw std::logic_error("with_verb: unknown verb");
}

}  // namespace benchmarks
