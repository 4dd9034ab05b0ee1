// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::nccl::detail {

/// Returns the NCCL type that elements of T travel as.
template <Element T>
constexpr ncclDataType_t datatype() noexcept {
    switch (element_type_of<T>) {
        case ElementType::fp64:
            return ncclFloat64;
        case ElementType::fp32:
            return ncclFloat32;
        case ElementType::bf16:
            return ncclBfloat16;
        case ElementType::fp16:
            return ncclFloat16;
        case ElementType::int64:
            return ncclInt64;
        case ElementType::int32:
            return ncclInt32;
        case ElementType::uint64:
            return ncclUint64;
        case ElementType::uint32:
            return ncclUint32;
        case ElementType::uint8:
            return ncclUint8;
    }
    return ncclNumTypes;
}

/// Returns the reduction as NCCL's constant.
constexpr ncclRedOp_t native(ReduceOp op) noexcept {
    return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
}

}  // namespace shardkit::nccl::detail
