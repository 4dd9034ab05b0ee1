// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/fp16.hpp>

#include "../common/measure.hpp"
#include "options.hpp"

namespace benchmarks {

/// f(std::type_identity<T>{}) with the element type, returning what f returns.
template <class F>
auto with_type(DataType type, F f) {
    switch (type) {
        case DataType::fp64:
            return f(std::type_identity<double>{});
        case DataType::fp32:
            return f(std::type_identity<float>{});
        case DataType::fp16:
            return f(std::type_identity<shardkit::fp16>{});
        case DataType::bf16:
            return f(std::type_identity<shardkit::bf16>{});
        case DataType::int64:
            return f(std::type_identity<std::int64_t>{});
        case DataType::int32:
            return f(std::type_identity<std::int32_t>{});
        case DataType::uint8:
            return f(std::type_identity<std::uint8_t>{});
    }
    throw std::logic_error("with_type: unknown element type");
}

/// Of one element.
inline std::size_t bytes_of(DataType type) {
    return with_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

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
        case VerbKind::all_to_all_uneven:
            return f(AllToAllUneven{});
        case VerbKind::send_receive:
            return f(SendReceive{});
        case VerbKind::barrier:
            return f(Barrier{});
    }
    throw std::logic_error("with_verb: unknown verb");
}

}  // namespace benchmarks
