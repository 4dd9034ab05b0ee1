// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace shardkit::test {

/// Memory that kernels work on, and the stream that they run in. Arrays are cut from the memory one behind the other.
template <class K>
class Machine {
  public:
    using Kernels = K;
    using Stream = typename Kernels::Stream;

    /// @pre `memory` is aligned to 512 bytes
    Machine(Stream stream, std::span<std::byte> memory) : stream_(stream), memory_(memory) {}

    const Stream& stream() const noexcept { return stream_; }
    /// Gives back all memory: the arrays made before are over.
    void clear() noexcept { used_ = 0; }
    std::byte* take(std::size_t bytes) {
        std::byte* const taken = memory_.data() + used_;
        used_ += (bytes + 511) / 512 * 512;
        REQUIRE(used_ <= memory_.size());
        return taken;
    }

  private:
    Stream stream_;
    std::span<std::byte> memory_;
    std::size_t used_ = 0;
};

/// One with memory of the host, and a stream that needs no device.
template <class K>
class HostMachine : public Machine<K> {
  public:
    HostMachine() : HostMachine(std::vector<Line>(std::size_t{1} << 15U)) {}

  private:
    struct alignas(512) Line {
        std::byte bytes[512];
    };
    explicit HostMachine(std::vector<Line> memory)
        : Machine<K>(typename K::Stream{}, std::as_writable_bytes(std::span(memory))), memory_(std::move(memory)) {}

    std::vector<Line> memory_;
};

/// Elements in a machine's memory, `offset` elements behind an aligned address. What is around them must stay as it
/// is.
template <class T, class M>
class Array {
  public:
    Array(M& machine, const std::vector<T>& values, std::size_t offset = 0)
        : machine_(&machine), offset_(offset), size_(values.size()), before_(around + offset + size_ + around) {
        std::memset(static_cast<void*>(before_.data()), 0x5a, before_.size() * sizeof(T));
        std::copy(values.begin(), values.end(), before_.begin() + static_cast<std::ptrdiff_t>(around + offset));
        at_ = reinterpret_cast<T*>(machine.take(before_.size() * sizeof(T)));
        M::Kernels::copy_in(machine.stream(), std::span<const T>(before_), all());
    }

    std::span<T> span() const { return all().subspan(around + offset_, size_); }
    std::span<const T> view() const { return span(); }
    T* data() const { return span().data(); }

    /// What the memory holds now.
    std::vector<T> values() const {
        std::vector<T> now(before_.size());
        M::Kernels::copy_out(machine_->stream(), std::span<const T>(all()), std::span<T>(now));
        const std::size_t head = (around + offset_) * sizeof(T);
        CHECK(std::memcmp(now.data(), before_.data(), head) == 0);
        CHECK(std::memcmp(now.data() + around + offset_ + size_, before_.data() + around + offset_ + size_,
                          around * sizeof(T)) == 0);
        const auto begin = now.begin() + static_cast<std::ptrdiff_t>(around + offset_);
        return {begin, begin + static_cast<std::ptrdiff_t>(size_)};
    }

  private:
    static constexpr std::size_t around = 16;  // elements: a multiple of every pack
    std::span<T> all() const { return {at_, before_.size()}; }

    M* machine_;
    std::size_t offset_;
    std::size_t size_;
    std::vector<T> before_;
    T* at_ = nullptr;
};

template <class T, class M>
Array<T, M> array(M& machine, const std::vector<T>& values, std::size_t offset = 0) {
    return {machine, values, offset};
}

}  // namespace shardkit::test
