// SPDX-License-Identifier: MIT
#include "engine/kernels/tile_entries.h"

namespace ab {

void select_of_tiles(const TileEntries& layout, const TileGroup& group, const Tensor& tiles, const Tensor& payload) {
  AB_ASSERT(payload.numel() == layout.bytes());
  dispatch_float(layout.wire, "select_of_tiles", [&]<class Wire>() {
    for_each_row(tiles.device(), group.tiles, group.size,
                 kernels::SelectOfTile<Wire>{tiles.data<float>() + group.first_element,
                                             static_cast<Wire*>(payload.raw()) + group.first_entry,
                                             layout.places(payload, group), group.size, group.k});
  });
}

void mean_of_senders(const TileEntries& layout, const TileGroup& group, const Tensor& payloads, const Tensor& tiles,
                     const Tensor& counts) {
  AB_ASSERT(payloads.numel() % layout.bytes() == 0 && counts.numel() == tiles.numel());
  dispatch_float(layout.wire, "mean_of_senders", [&]<class Wire>() {
    const auto* const values =
        reinterpret_cast<const std::uint8_t*>(static_cast<Wire*>(payloads.raw()) + group.first_entry);
    const auto* const places = reinterpret_cast<const std::uint8_t*>(layout.places(payloads, group));
    for_each_row(tiles.device(), group.tiles, group.size,
                 kernels::MeanOfSenders<Wire>{values, places, payloads.numel() / layout.bytes(), layout.bytes(),
                                              group.size, group.k, tiles.data<float>() + group.first_element,
                                              counts.data<float>() + group.first_element});
  });
}

}  // namespace ab
