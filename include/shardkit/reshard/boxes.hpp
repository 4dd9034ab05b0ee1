// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/checkpoint/stored_runs.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// Bytes that a rank sends to ranks of the same program.
class Parcel {
  public:
    template <class T>
    void add(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void add_text(std::string_view text) {
        add(std::uint64_t{text.size()});
        bytes_.append(text);
    }
    std::string take() && { return std::move(bytes_); }

  private:
    std::string bytes_;
};

/// Takes a Parcel's parts out, in the order in which they were added.
class OpenedParcel {
  public:
    explicit OpenedParcel(std::string_view bytes) noexcept : left_(bytes) {}

    template <class T>
    T next() {
        std::array<std::byte, sizeof(T)> bytes;
        std::memcpy(bytes.data(), take(sizeof(T)).data(), sizeof(T));
        return std::bit_cast<T>(bytes);
    }
    std::string next_text() { return std::string(take(static_cast<std::size_t>(next<std::uint64_t>()))); }

  private:
    std::string_view take(std::size_t count) {
        const std::string_view part = left_.substr(0, count);
        left_.remove_prefix(count);
        return part;
    }

    std::string_view left_;
};

/// A parameter's values of one kind on one side of a reshard: where a checkpoint's file has them, and where each
/// rank's flat buffer does. Without what differs between the ranks of a side, which is a HeldElements.
struct BoxedTensor {
    std::size_t file = 0;     ///< number of the file
    std::size_t values = 0;   ///< number of the values among those of all groups of the side
    std::uint64_t begin = 0;  ///< first byte in the file
    std::size_t size = 0;     ///< of an element in the file
    std::size_t held = 0;     ///< of an element in a rank's memory
    IndexRange range;         ///< of a rank's part in the flat buffer
    TensorPart part;          ///< of some rank
    StoredOrder order;

    std::uint64_t end() const noexcept { return begin + order.numel() * size; }
    /// Returns whether each rank has the same elements of both in the same places.
    bool lies_as(const BoxedTensor& other) const noexcept {
        return file == other.file && begin == other.begin && range == other.range &&
               part.block() == other.part.block() && order.hash() == other.order.hash() &&
               order.numel() == other.order.numel();
    }
    bool is_as(const BoxedTensor& other) const noexcept {
        return lies_as(other) && values == other.values && size == other.size && held == other.held;
    }
};
static_assert(std::is_trivially_copyable_v<BoxedTensor>);

/// The elements of a flat buffer that a rank has of some values, or needs.
struct HeldElements {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t tp_index = 0;
    std::uint64_t ep_index = 0;

    friend bool operator==(const HeldElements&, const HeldElements&) = default;
};

/// One side of a reshard, the same on all of its ranks.
struct Boxes {
    List<BoxedTensor> tensors;
    List<std::string> names;  ///< of the tensors, for messages
    std::size_t values = 0;   ///< number of values of all groups

    void add_to(Parcel& parcel) const {
        parcel.add(values);
        parcel.add(tensors.size());
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            parcel.add(tensors[t]);
            parcel.add_text(names[t]);
        }
    }
    static Boxes of(OpenedParcel& parcel) {
        Boxes boxes;
        boxes.values = parcel.next<std::size_t>();
        for (std::size_t left = parcel.next<std::size_t>(); left > 0; --left) {
            boxes.tensors.push_back(parcel.next<BoxedTensor>());
            boxes.names.push_back(parcel.next_text());
        }
        return boxes;
    }
};

/// Returns the runs of a tensor that a rank has or needs, in the order of the file and by its bytes.
inline List<StoredRun> runs_of(const BoxedTensor& tensor, const HeldElements& held) {
    const IndexRange flat = intersect(tensor.range, {held.begin, held.end});
    List<StoredRun> runs = runs_of(tensor.order, tensor.part.of(held.tp_index, held.ep_index),
                                   relative_to(flat, tensor.range.begin), {0, tensor.order.numel()});
    for (StoredRun& run : runs) {
        run.at = tensor.begin + run.at * tensor.size;
        run.flat += tensor.range.begin;
    }
    return runs;
}

}  // namespace shardkit::detail
