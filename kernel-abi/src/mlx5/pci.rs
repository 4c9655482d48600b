//! The devices on the PCI bus, as the driver's table in the kernel has them.

/// The vendor of all of them. It makes others as well.
pub const PCI_VENDOR: u16 = 0x15b3;

/// The devices from Connect-IB on, with their virtual functions.
pub const PCI_DEVICES: [u16; 23] = [
    // Connect-IB, ConnectX-4, ConnectX-4 Lx.
    0x1011, 0x1012, 0x1013, 0x1014, 0x1015, 0x1016, //
    // ConnectX-5 and 5 Ex, ConnectX-6 with Dx and Lx.
    0x1017, 0x1018, 0x1019, 0x101a, 0x101b, 0x101c, 0x101d, 0x101e, 0x101f, //
    // ConnectX-7, 8 and 9.
    0x1021, 0x1023, 0x1025, //
    // What BlueField 1 to 4 have inside.
    0xa2d2, 0xa2d3, 0xa2d6, 0xa2dc, 0xa2df,
];
