// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>

#include "clique.hpp"

namespace standin {
namespace {

using Bytes = std::vector<std::byte>;

/// a + b, a * b as NCCL's kernels do in the element type: integers wrap, 16-bit types are rounded every time.
template <class T, class F>
T in_type(T a, T b, const F& f) {
    if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<U>(f(static_cast<U>(a), static_cast<U>(b))));
    } else if constexpr (std::is_floating_point_v<T>) {
        return f(a, b);
    } else {
        return T(f(static_cast<float>(a), static_cast<float>(b)));
    }
}
template <class T>
auto comparable(T value) {
    if constexpr (std::is_arithmetic_v<T>) {
        return value;
    } else {
        return static_cast<float>(value);
    }
}
template <class T>
T average(T sum, std::size_t ranks) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(sum / static_cast<T>(ranks));
    } else if constexpr (std::is_floating_point_v<T>) {
        return sum / static_cast<T>(ranks);
    } else {
        return T(static_cast<float>(sum) / static_cast<float>(ranks));
    }
}

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
    switch (op) {
        case ncclProd:
            return in_type(a, b, [](auto x, auto y) { return x * y; });
        case ncclMax:
            return comparable(b) > comparable(a) ? b : a;
        case ncclMin:
            return comparable(b) < comparable(a) ? b : a;
        default:
            return in_type(a, b, [](auto x, auto y) { return x + y; });
    }
}

/// All elements of all parties combined, those of the ranks one after the other as in `order`.
template <class T>
void reduce(const Rendezvous& rendezvous, const std::vector<std::size_t>& order, std::size_t count, std::byte* to) {
    for (std::size_t i = 0; i < count; ++i) {
        T total{};
        for (const std::size_t rank : order) {
            T value;
            std::memcpy(&value, static_cast<const std::byte*>(rendezvous.parties[rank].send) + i * sizeof(T),
                        sizeof(T));
            total = rank == order.front() ? value : combine(rendezvous.signature.op, total, value);
        }
        if (rendezvous.signature.op == ncclAvg) { total = average(total, rendezvous.parties.size()); }
        std::memcpy(to + i * sizeof(T), &total, sizeof(T));
    }
}

void reduce(const Rendezvous& rendezvous, const std::vector<std::size_t>& order, std::size_t count, std::byte* to) {
    switch (rendezvous.signature.type) {
        case ncclInt8:
            return reduce<std::int8_t>(rendezvous, order, count, to);
        case ncclUint8:
            return reduce<std::uint8_t>(rendezvous, order, count, to);
        case ncclInt32:
            return reduce<std::int32_t>(rendezvous, order, count, to);
        case ncclUint32:
            return reduce<std::uint32_t>(rendezvous, order, count, to);
        case ncclInt64:
            return reduce<std::int64_t>(rendezvous, order, count, to);
        case ncclUint64:
            return reduce<std::uint64_t>(rendezvous, order, count, to);
        case ncclFloat16:
            return reduce<shardkit::fp16>(rendezvous, order, count, to);
        case ncclFloat32:
            return reduce<float>(rendezvous, order, count, to);
        case ncclFloat64:
            return reduce<double>(rendezvous, order, count, to);
        case ncclBfloat16:
            return reduce<shardkit::bf16>(rendezvous, order, count, to);
        default:
            return;  // refused at the call
    }
}

/// As NCCL's kernels for symmetric windows: 16-bit floats are added in fp32 and rounded once, those of part r, which
/// rank r adds, from rank r on upwards.
template <class T>
void reduce_symmetric(const Rendezvous& rendezvous, std::size_t count, std::byte* to) {
    using Wide = std::conditional_t<sizeof(T) < sizeof(float), float, T>;
    const std::size_t ranks = rendezvous.parties.size();
    const std::size_t part = (count + ranks - 1) / ranks;
    for (std::size_t i = 0; i < count; ++i) {
        Wide total{};
        for (std::size_t k = 0; k < ranks; ++k) {
            T value;
            const std::size_t rank = (i / part + k) % ranks;
            std::memcpy(&value, static_cast<const std::byte*>(rendezvous.parties[rank].send) + i * sizeof(T),
                        sizeof(T));
            total = k == 0 ? static_cast<Wide>(value) : total + static_cast<Wide>(value);
        }
        const T rounded(total);
        std::memcpy(to + i * sizeof(T), &rounded, sizeof(T));
    }
}

void reduce_symmetric(const Rendezvous& rendezvous, std::size_t count, std::byte* to) {
    switch (rendezvous.signature.type) {
        case ncclFloat16:
            return reduce_symmetric<shardkit::fp16>(rendezvous, count, to);
        case ncclBfloat16:
            return reduce_symmetric<shardkit::bf16>(rendezvous, count, to);
        default:
            return reduce_symmetric<float>(rendezvous, count, to);
    }
}

/// All ranks, from `from` on downwards.
std::vector<std::size_t> downwards(std::size_t ranks, std::size_t from) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < ranks; ++i) { order.push_back((from + ranks - i) % ranks); }
    return order;
}

Bytes copy_of(const void* from, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    return {begin, begin + bytes};
}

}  // namespace

std::size_t element_bytes(ncclDataType_t type) {
    switch (type) {
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32:
            return 4;
        case ncclInt64:
        case ncclUint64:
        case ncclFloat64:
            return 8;
        default:
            return 1;
    }
}

std::vector<Range> ranges(const Signature& signature, std::size_t ranks, bool is_root, const void* send,
                          void* receive) {
    const std::size_t bytes = signature.count * element_bytes(signature.type);
    switch (signature.kind) {
        case Kind::all_gather:
            return {{send, bytes}, {receive, bytes * ranks}};
        case Kind::reduce_scatter:
            return {{send, bytes * ranks}, {receive, bytes}};
        case Kind::all_reduce:
            return {{send, bytes}, {receive, bytes}};
        case Kind::broadcast:
            return is_root ? std::vector<Range>{{send, bytes}, {receive, bytes}}
                           : std::vector<Range>{{receive, bytes}};
        case Kind::send:
            return {{send, bytes}};
        case Kind::receive:
            return {{receive, bytes}};
    }
    return {};
}

// Results are made aside first: receive buffers may be the send buffers.
void move_data(const Rendezvous& rendezvous, bool same_bits) {
    const Signature& signature = rendezvous.signature;
    const auto& parties = rendezvous.parties;
    const std::size_t bytes = signature.count * element_bytes(signature.type);
    Bytes result;
    std::size_t stride = 0;  // from one rank's result to the next
    std::size_t size = bytes;
    switch (signature.kind) {
        case Kind::all_gather:
            size = bytes * parties.size();
            for (const auto& party : parties) {
                const Bytes shard = copy_of(party.send, bytes);
                result.insert(result.end(), shard.begin(), shard.end());
            }
            break;
        case Kind::reduce_scatter: {
            stride = bytes;
            result.resize(bytes * parties.size());
            if (signature.symmetric) {
                reduce_symmetric(rendezvous, signature.count * parties.size(), result.data());
                break;
            }
            std::vector<std::size_t> upwards(parties.size());
            std::iota(upwards.begin(), upwards.end(), std::size_t{0});
            reduce(rendezvous, upwards, signature.count * parties.size(), result.data());
            break;
        }
        case Kind::all_reduce:
            if (signature.symmetric) {
                result.resize(bytes);
                reduce_symmetric(rendezvous, signature.count, result.data());
                break;
            }
            stride = same_bits ? 0 : bytes;
            result.resize(same_bits ? bytes : bytes * parties.size());
            for (std::size_t rank = same_bits ? parties.size() - 1 : 0; rank < parties.size(); ++rank) {
                reduce(rendezvous, downwards(parties.size(), rank), signature.count, result.data() + rank * stride);
            }
            break;
        case Kind::broadcast:
            result = copy_of(parties[static_cast<std::size_t>(signature.root)].send, bytes);
            break;
        case Kind::send:
        case Kind::receive:
            result = copy_of(parties[0].send, bytes);
            if (size > 0) { std::memcpy(parties[1].receive, result.data(), size); }
            return;
    }
    for (std::size_t rank = 0; rank < parties.size(); ++rank) {
        if (size > 0) { std::memcpy(parties[rank].receive, result.data() + rank * stride, size); }
    }
}

}  // namespace standin
