/**
 * What takes room on a disk for which nothing is written, and so faster than anybody can look. Where the limit of a volume
 * is not the kernel's it would be passed by gigabytes between two looks. File systems without it answer EOPNOTSUPP, at which
 * programs write instead (glibc's posix_fallocate does).
 */

/** FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE: gives room back and takes none; every other mode may take some. */
export const PUNCH_HOLE = 0x03;

/** By uapi/linux/falloc.h, fs.h and btrfs.h, and xfs_fs.h of xfsprogs. */
export const roomRequests: readonly number[] = [
  // FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE are fallocate by another name; what gives back is FS_IOC_UNRESVSP.
  ...[0x40305828, 0x4030582a, 0x40305839],
  // XFS_IOC_ALLOCSP, FREESP and their second forms, until Linux 5.16: both take room up to the new end of a file.
  ...[0x4030580a, 0x4030580b, 0x40305824, 0x40305825],
  // FS_IOC_FSSETXATTR sets, among others, how much XFS takes for the first byte of a file (its extent size).
  0x401c5820,
  // BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE and their second forms: measuring a volume stays on one file system, and a
  // subvolume looks like another.
  ...[0x50009401, 0x5000940e, 0x50009417, 0x50009418],
];
